"""The loop that trains a user's workload: ours, so that fixes that live in code can be tried on it.

Nothing in here observes or measures, as in the reference loop.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import jax

from perfdoctor.injection.imposing import once_set_up
from perfdoctor.schema.capture import batch_asked
from perfdoctor.schema.fix import Change, Scalar
from perfdoctor.schema.parts import Parts
from perfdoctor.targets.workload_object.feeding import batches_of
from perfdoctor.targets.workload_object.finding import Given
from perfdoctor.targets.workload_object.jitting import Step, jitted, owned
from perfdoctor.targets.workload_object.reading import Reads
from perfdoctor.targets.workload_object.results import (
    alike,
    check_same_shapes,
    check_tree,
    examples_of,
    holds_host_arrays,
    marks_of,
    shapes_of,
    state_and_metrics,
)

SET_UP_STEPS = 3
"""So many steps in, all that a set-up makes is alive."""


class WorkloadLoop:
    """One training run of a workload, with a change made to it."""

    def __init__(self, given: Given, change: Change) -> None:
        self._given = given
        self._size = batch_asked(str(change.step.get("program", "")))
        self._log_every = logging_of(given, change.step)
        self._step = changed_step(given, change.step)
        self._batches = batches_of(given, change.step, self._size)
        self._once_set_up = once_set_up(freeze=change.gc_freeze, skip=change.gc_skip_collect)
        self._state = self._first_state(owns=change.step.get("donated") is True)
        self._metrics: Any = None
        self._count = 0
        self.parts = self._set_up()
        self.examples_per_step = self.parts.batch_size or 1

    def run_each(self, steps: Iterable[int]) -> None:
        """Dispatch a step for each number; the last of them may still be computing on return."""
        for _ in steps:
            batch = next(self._batches)
            self._state, self._metrics = self._step(self._state, batch)
            self._count += 1
            if self._log_every and self._count % self._log_every == 0:
                self._log_metrics()

    def wait(self) -> None:
        """Until the device has computed all that was dispatched."""
        jax.block_until_ready((self._state, self._metrics))

    def close(self) -> None:
        """End what prepares batches beside the loop."""
        if hasattr(self._batches, "close"):
            self._batches.close()

    def _log_metrics(self) -> None:
        """Fetch the metrics of the newest step, as a log would: it waits for them."""
        jax.device_get(self._metrics)

    def _first_state(self, *, owns: bool) -> Any:
        state = self._given.init()
        check_tree(state, "init()", self._given.name)
        return owned(state) if owns else state

    def _set_up(self) -> Parts:
        """The first steps, whose results are looked at."""
        name, batches, shapes = self._given.name, [], []
        for _ in range(SET_UP_STEPS):
            batch = next(self._batches)
            batches.append((examples_of(batch), marks_of(batch)))
            result = self._step(self._state, batch)
            self._state, self._metrics = state_and_metrics(result, name)
            check_tree(self._state, "step()", name)
            shapes.append(shapes_of(self._state))
        check_same_shapes(shapes[0], shapes[1], name)
        self._once_set_up()
        (examples, first), (_, second) = batches[:2]
        return Parts(
            batch_size=self._size or self._given.batch_size or examples,
            takes_batch_size=self._given.takes_batch_size,
            is_jitted=hasattr(self._given.step, "lower"),
            hands_over_again=bool(alike(first, second)) or holds_host_arrays(self._state),
        )


def changed_step(given: Given, change: Mapping[str, Scalar]) -> Step:
    """The step, with what the change does to it."""
    step, donates = given.step, change.get("donated") is True
    if donates or change.get("jitted") == "whole":
        step = jitted(step, donates=donates)
    resident = change.get("resident") == "state"
    if "waits" in change or resident:
        step = Reads(rarely(change), fetches=not resident).around(step)
    return step


def logging_of(given: Given, change: Mapping[str, Scalar]) -> int:
    """After how many steps the metrics are read; 0: never."""
    if "waits" not in change or not given.log_every:
        return given.log_every
    every = rarely(change)
    return max(given.log_every, every) if every else 0


def rarely(change: Mapping[str, Scalar]) -> int:
    """Of how many steps one waits; 0: none."""
    waits = float(change.get("waits", 0.0))
    return round(1 / waits) if waits > 0 else 0
