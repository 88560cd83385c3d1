"""How our own loops run: to their end by themselves, step by step as a worker of a trial."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, Protocol

import jax

from perfdoctor.counters import SAMPLES, STEPS, Compiling, opened, rest, steps


class Loop(Protocol):
    """Makes steps as often as it is asked to."""

    examples_per_step: int

    def run_each(self, steps: Iterable[int]) -> None:
        """Dispatch a step for each number; the last of them may still be computing on return."""

    def wait(self) -> None:
        """Until all that was dispatched is computed."""


def leave(number: int, frame: Any) -> NoReturn:
    """End as a program ends that is done, so that worker processes are closed too."""
    sys.exit(0)


def count_steps(loop: Loop, folder: Path) -> NoReturn:
    """Make steps for ever, each counted; rest with nothing left to compute, whenever asked to."""
    counters = opened(folder, STEPS)
    counters[SAMPLES] = loop.examples_per_step
    jax.monitoring.register_event_duration_secs_listener(Compiling(counters))
    while True:
        loop.run_each(steps(counters))
        loop.wait()
        rest(counters)
