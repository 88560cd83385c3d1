"""Run the reference loop.

python -m perfdoctor.targets.reference WORKLOAD.json FOLDER [--controlled]

By itself it trains until its steps are done. With `--controlled` it trains when it is told to: each
line on stdin is a number of steps, each answer on stdout a JSON object (`Slice`).
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import jax
import msgspec

from perfdoctor.kernel import die_with_parent, offer_to_the_oom_killer
from perfdoctor.schema.slices import Slice
from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.loop import TrainingLoop
from perfdoctor.targets.reference.serving import Serving


def leave(number: int, frame: Any) -> NoReturn:
    """End as a program ends that is done, so that worker processes are closed too."""
    sys.exit(0)


def controlled(loop: TrainingLoop | Serving) -> None:
    """Run as many steps as each line asks for, and answer what they took."""
    compiles = 0

    def count(name: str, seconds: float, **details: Any) -> None:
        nonlocal compiles
        compiles += name.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(count)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        before = compiles
        wall, cpu = time.perf_counter(), time.process_time()
        loop.run(int(line))
        loop.wait()
        slice_ = Slice(
            steps=int(line),
            samples=int(line) * loop.examples_per_step,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
            compiles=compiles - before,
        )
        answers.write(msgspec.json.encode(slice_) + b"\n")


def main() -> None:
    """Run the workload of the first argument on the data of the second."""
    signal.signal(signal.SIGTERM, leave)
    die_with_parent()
    offer_to_the_oom_killer()
    spec, folder, *options = sys.argv[1:]
    workload = msgspec.json.decode(Path(spec).read_bytes(), type=Workload)
    kind = Serving if workload.inference.clients else TrainingLoop
    loop: TrainingLoop | Serving = kind(workload, Path(folder))
    try:
        if "--controlled" in options:
            controlled(loop)
        else:
            loop.run(workload.training.steps)
            loop.wait()
    finally:
        loop.close()


if __name__ == "__main__":
    main()
