"""What observing costs a step: the same process with and without the agent's parts, in turn.

python -m tests.benchmarks.observer_overhead [ROUNDS]

Each round runs two slices in random order, one of them bare; the other with the agent as it is for
most of a run (a thread that looks now and then, garbage and compilation watch), or as in the window
(profiler and stack sampler too). Starting and stopping the trace lies outside slices and window.
"""

import logging
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax

from perfdoctor.observe.agent.compilation import LOGGERS, CompilationWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.stacks import StackSampler
from perfdoctor.observe.agent.waiting import LOOK_EVERY_S
from perfdoctor.observe.agent.window import SAMPLE_EVERY_S
from perfdoctor.observe.following import WINDOW_S
from perfdoctor.processes import ProcessGroups
from perfdoctor.targets import workload
from perfdoctor.targets.reference import dataset
from perfdoctor.targets.reference.loop import TrainingLoop
from perfdoctor.trials.statistics import trimmed_mean
from tests.saved import save

AGENT_SLICE_S, WINDOW_SLICE_S = 0.1, 0.4
"""Short, and many of them: neighbours in time share the machine's drifts."""
RUN_S = 60.0
"""Length of the run that the window is a share of."""
WORKLOADS: dict[str, dict[str, Any]] = {
    "mlp, 1.5 ms": {"model": {"name": "mlp", "width": 64}},
    "cnn, 7 ms": {},
    "cnn, 18 ms": {"training": {"batch_size": 128}},
}


class Looker(threading.Thread):
    """The agent's thread. It lives all the time, as in a run: its start is no part of a step."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.active = threading.Event()
        self.look: Callable[[], object] = int
        self.every_s = LOOK_EVERY_S
        self.start()

    def run(self) -> None:
        """Look now and then while active."""
        while self.active.wait():
            self.look()
            time.sleep(self.every_s)


@contextmanager
def agent(looker: Looker, every_s: float = LOOK_EVERY_S, sampling: bool = False) -> Iterator[None]:
    """The agent's parts that are there all the time, or with its sampler."""
    garbage, compilation, stacks = GarbageWatch(), CompilationWatch(), StackSampler()
    garbage.install()
    compilation.install(jax)
    looker.look = stacks.sample if sampling else compilation.quiet_for_s
    looker.every_s = every_s
    looker.active.set()
    try:
        yield
    finally:
        looker.active.clear()
        garbage.remove()
        remove(compilation)


def remove(compilation: CompilationWatch) -> None:
    """Undo its `install`."""
    jax.monitoring.unregister_event_duration_listener(compilation)
    jax.monitoring.unregister_event_listener(compilation.count)
    for name in LOGGERS:
        logging.getLogger(name).removeFilter(compilation.filter)
    jax.config.update("jax_explain_cache_misses", False)


@contextmanager
def traced(looker: Looker, folder: str) -> Iterator[None]:
    """The agent, and the profiler as in the window."""
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 1, 0
    jax.profiler.start_trace(folder, profiler_options=options)
    try:
        with agent(looker, SAMPLE_EVERY_S, sampling=True):
            yield
    finally:
        jax.profiler.stop_trace()


def slice_ms(loop: TrainingLoop, steps: int) -> float:
    """Milliseconds a step."""
    start = time.perf_counter()
    loop.run(steps)
    loop.wait()
    return (time.perf_counter() - start) / steps * 1e3


State = Callable[[], AbstractContextManager[None]]


def overhead(loop: TrainingLoop, state: State, slice_s: float, rounds: int) -> tuple[float, float]:
    """Of a state against none: share of the step time, and half width of its 95 % interval."""
    steps = max(1, round(slice_s * 1e3 / slice_ms(loop, 20)))
    ratios = []
    for _ in range(rounds):
        times = {}
        for name in random.sample(["bare", "state"], 2):
            with state() if name == "state" else nullcontext():
                times[name] = slice_ms(loop, steps)
        ratios.append(math.log(times["state"] / times["bare"]))
    mean, error, _ = trimmed_mean(ratios)
    return math.expm1(mean), 1.96 * error


def measure(loop: TrainingLoop, rounds: int) -> tuple[float, dict[str, tuple[float, float]]]:
    """Step time in ms, and the overheads outside and inside the window."""
    loop.run(50)
    loop.wait()
    looker = Looker()
    with tempfile.TemporaryDirectory() as folder:
        few = max(5, rounds // 12)
        found = {
            "agent": overhead(loop, lambda: agent(looker), AGENT_SLICE_S, rounds),
            "window": overhead(loop, lambda: traced(looker, folder), WINDOW_SLICE_S, few),
        }
    return slice_ms(loop, 100), found


def main() -> None:
    """Measure all workloads, and say what a run of a minute pays."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 240
    lines = ["workload                    step      agent            window           run of 60 s"]
    data = {}
    for name, spec in WORKLOADS.items():
        plan = workload.convert(spec, name)
        with ProcessGroups() as groups:
            folder = dataset.ensure(plan, groups, lambda text: None)
        step_ms, found = measure(TrainingLoop(plan, Path(folder)), rounds)
        (agent_share, agent_half), (window_share, window_half) = found["agent"], found["window"]
        whole = (agent_share * (RUN_S - WINDOW_S) + window_share * WINDOW_S) / RUN_S
        lines.append(
            f"{name:<26}  {step_ms:5.2f} ms  {agent_share:+5.1%} ± {agent_half:4.1%}   "
            f"{window_share:+5.1%} ± {window_half:4.1%}   {whole:+5.1%}"
        )
        data[name] = {"step_ms": step_ms, **found, "run": whole}
    save("observer_overhead", lines, data)


if __name__ == "__main__":
    main()
