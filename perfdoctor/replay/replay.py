"""Replays the captured step of a program, and measures fixes on it."""

import math
import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from perfdoctor.observe.in_turn import Running
from perfdoctor.processes import ProcessGroups
from perfdoctor.replay.changes import changed, rare_ms
from perfdoctor.replay.conditions import alone, compiles, host_of, program_of
from perfdoctor.replay.emulation import Emulation
from perfdoctor.replay.fidelity import (
    NEAR,
    basis_of,
    observed_ms,
)
from perfdoctor.replay.in_turn import turns as turns_of
from perfdoctor.replay.in_turn import was_disturbed
from perfdoctor.replay.process import OF_THE_PROCESS, Quiet, ReplayProcess, capture_in
from perfdoctor.replay.side import Side
from perfdoctor.replay.slices import PAIR_S, SLICE_S
from perfdoctor.replay.whole import told_of_whole, ways_of_whole
from perfdoctor.schema.calls import Alone, Eager
from perfdoctor.schema.capture import (
    AS_IT_IS,
    MANIFEST,
    WHOLE,
    Capture,
    growth,
)
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.trials.change import merged
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.pair import enough
from perfdoctor.trials.statistics import FAITHFUL
from perfdoctor.trials.way import Play, Way


class Replay:
    """The captured step of one observation, in processes that live as long as the block."""

    def __init__(
        self,
        groups: ProcessGroups,
        env: Mapping[str, str],
        folder: Path,
        say: Callable[[str], None],
        quiet: Quiet = nullcontext,
    ) -> None:
        """`quiet`: in which steps are timed."""
        self._groups, self._env, self._folder, self._say = groups, env, folder, say
        self._quiet = quiet
        self._process = ExitStack()
        self._base: ReplayProcess | None = None
        self._turns: list[float] = []
        self._turned: Capture | None = None
        """The step that has taken turns."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self._process.close()

    def whole(self, observation: Observation) -> list[Way]:
        """How it is measured what jitting the function gains that dispatches its operations."""
        return ways_of_whole(observation.eager, observation.steps, self._whole)

    def told_of_whole(self, eager: Eager, until: float) -> Alone:
        """What the function that dispatches its operations takes as one program; WorkerEnded."""
        self._say(f"running {eager.function} as one program")
        return told_of_whole(eager, self._whole, until)

    def _whole(self) -> ReplayProcess:
        folder = self._folder / WHOLE
        capture = capture_in(folder)
        return ReplayProcess(self._groups, self._env, folder, capture, Change(), self._quiet)

    def in_turn(self, running: Running) -> None:
        """Time the captured step alone in turn with the program, while this still runs."""
        if not (self._folder / MANIFEST).exists():
            return
        self._say("timing its step in turn with the run")
        try:
            conditions = alone(self._program())
            self._turned = self._capture
            self._turns = turns_of(partial(self._unchanged().run, conditions), running)
        except WorkerEnded:
            self._forget_turns()  # the process may still answer what nobody asks it any more
        if was_disturbed(self._turns):
            self._forget_turns()  # it may be the process that was slow

    def _forget_turns(self) -> None:
        """Go on as if there had been none, in another process."""
        self.renew()
        self._turns = []

    def _program(self) -> str:
        """Which program of the captured step is run; WorkerEnded if none can be."""
        self._capture = capture_in(self._folder)
        return program_of(self._capture)

    def _unchanged(self) -> ReplayProcess:
        """The process of the unchanged step; another one if that has ended."""
        if self._base is None or not self._base.lives:
            self._base = self._process.enter_context(self._started(Change()))
        return self._base

    def told(self, observation: Observation, until: float) -> Alone:
        """What the step takes alone, and beside what the host does; WorkerEnded if that can't be
        told.
        """
        calls = observation.calls
        if calls is None or not (self._folder / MANIFEST).exists():
            raise WorkerEnded(observation.not_measured.get("calls", "no step was saved"))
        program = self._program()
        if self._turned not in (None, self._capture):  # a longer window has shown another step
            self._forget_turns()
        self._say("replaying the step alone")
        by_itself = self._unchanged().run(alone(program), SLICE_S, until)
        self._host = host_of(calls, observation.steps, by_itself, program)
        self._compiles = compiles(calls)
        in_run_ms, process = observed_ms(calls, observation.steps), self._unchanged()
        turns = self._turns if in_run_ms > self._host.rare_ms else ()
        emulation = Emulation(process, self._host, in_run_ms, turns, until)
        alone_ms, emulated_ms = emulation.alone_ms(program), None
        if program == AS_IT_IS and not self._compiles:
            emulated_ms = emulation.beside_host_ms(alone_ms)
        self._alone = Alone(
            alone_ms=alone_ms,
            emulated_ms=emulated_ms,
            observed_ms=in_run_ms,
            made=self._capture.made,
        )
        return self._alone

    def play(self, change: Change, until: float, base: Change | None = None) -> list[float]:
        """Log ratios of the step rate, changed over unchanged, one for each round. WorkerEnded.

        `base`: another change that is made on both sides.
        """
        with ExitStack() as stack:
            before = self._side(base or Change(), self._unchanged(), stack)
            after = self._side(merged([base, change]) if base else change, before.process, stack)
            is_unlike = self._alone.emulated_ms is None or "restless" in change.step
            if base is None and is_unlike:
                before = self._for_observed()
            sides = [before, after]
            seconds = max(side.slice_s(until) for side in sides)
            ratios: list[float] = []
            while not enough(ratios, until):
                took_ms = {
                    side: side.step_ms(seconds, until) for side in random.sample(sides, len(sides))
                }
                times = after.examples / before.examples
                ratios.append(math.log(times * took_ms[before] / took_ms[after]))
            return ratios

    def _for_observed(self) -> Side:
        """In place of the program's step, which can't be emulated: the step alone, as many times as
        long as that one was seen to take.
        """
        times = self._alone.observed_ms / self._alone.alone_ms
        return Side(self._unchanged(), alone(self._host.as_observed.program), times=times)

    def renew(self) -> None:
        """Have what is measured next run in another process: how memory lies in one is luck."""
        self._process.close()

    def after(self, base: Change) -> Play:
        """Measures changes with another one made on both sides."""
        return partial(self.play, base=base)

    def at_rest(self) -> Way | None:
        """How it is measured what a step gains if nobody works on beside it; None if nobody does.
        What those take of the cores and of the interpreter no replay takes quite alike, so the step
        without them is compared with the observed one.
        """
        beside = self._host.as_observed
        if not beside.restless and not beside.restless_threads:
            return None
        basis = basis_of(self._alone)

        def can(change: Change) -> bool:
            return "restless" in change.step and self.can(change)

        return Way(self.play, can, basis, None, after=self.after, pair_s=PAIR_S, renew=self.renew)

    def _side(self, change: Change, process: ReplayProcess, stack: ExitStack) -> Side:
        """The step with a change; in another process than `process` only where it takes one."""
        of_it = {name: getattr(change, name) for name in OF_THE_PROCESS}
        if any(of_it.values()) and of_it != process.changes:
            process = stack.enter_context(self._started(change))
        conditions = changed(self._host, change.step)
        examples = growth(conditions.program)
        if conditions.program == "together":
            examples = self._host.as_observed.callers
        # What is done now and then is spared by no larger batch: it is done as often for as many.
        return Side(process, conditions, examples, examples * rare_ms(self._host, change.step))

    def can(self, change: Change) -> bool:
        """Whether a change can be made to the replayed step, and compared with it unchanged."""
        if "jitted" in change.step:
            return False  # of another function
        conditions = changed(self._host, change.step)
        of_the_process = any(getattr(change, name) for name in OF_THE_PROCESS)
        is_rarer = rare_ms(self._host, change.step) < self._host.rare_ms
        changes_it = of_the_process or is_rarer or conditions != self._host.as_observed
        if change.speeds_up != "steps" or change.workload:
            return False
        if not any(conditions.program in call.programs for call in self._capture.calls):
            return False
        if self._alone.emulated_ms is not None:
            return changes_it
        return "compiled" in change.step if self._compiles else "program" in change.step

    def at_most(self, change: Change) -> Change | None:
        """A larger batch that takes no longer to be loaded: whether it does, nobody has seen."""
        beside = self._host.as_observed
        loading_ms = self._host.loading_share * beside.work_ms
        loading_ms += beside.threads_ms + beside.children_ms
        larger = growth(changed(self._host, change.step).program) > 1
        if not larger or loading_ms < FAITHFUL * self._alone.observed_ms:
            return None
        return msgspec.structs.replace(change, step={"growing": 0, **change.step})

    def _started(self, change: Change) -> ReplayProcess:
        return ReplayProcess(
            self._groups, self._env, self._folder, self._capture, change, self._quiet
        )


def way_of(replay: Replay, alone: Alone) -> Way | None:
    """How fixes are measured on a replayed step; None where that says nothing of the program.

    Where the emulated step is further from the observed one than a measurement allows, but not far,
    what is gained on it is an estimate, better than one by the timeline.
    """
    error = alone.emulation_error
    if error is not None and abs(error) > math.log(1 + NEAR):
        return None
    return Way(
        replay.play,
        replay.can,
        basis_of(alone),
        error,
        at_most=replay.at_most,
        after=replay.after,
        pair_s=PAIR_S,
        renew=replay.renew,
    )
