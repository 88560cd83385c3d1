"""Run the reference loop.

python -m perfdoctor.targets.reference WORKLOAD.json DATA [--counters FOLDER]

By itself it trains until its steps are done. As a worker of a trial it makes steps for ever: it
counts them in the folder's counters, and rests when these ask it to (`perfdoctor.counters`).
"""

import signal
import sys
from pathlib import Path

import msgspec

from perfdoctor.kernel import die_with_parent, offer_to_the_oom_killer
from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.loop import TrainingLoop
from perfdoctor.targets.reference.serving import Serving
from perfdoctor.targets.running import count_steps, leave


def main() -> None:
    """Run the workload of the first argument on the data of the second."""
    signal.signal(signal.SIGTERM, leave)
    die_with_parent()
    offer_to_the_oom_killer()
    spec, data, *options = sys.argv[1:]
    workload = msgspec.json.decode(Path(spec).read_bytes(), type=Workload)
    kind = Serving if workload.inference.clients else TrainingLoop
    loop: TrainingLoop | Serving = kind(workload, Path(data))
    try:
        if options:
            _, folder = options
            count_steps(loop, Path(folder))
        else:
            loop.run(workload.training.steps)
            loop.wait()
    finally:
        loop.close()


if __name__ == "__main__":
    main()
