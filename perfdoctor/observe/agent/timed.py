"""Steps that are timed while nothing is traced, and what the process does meanwhile."""

import os
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from perfdoctor.injection.calls import Hearing
from perfdoctor.observe.agent.beside import Beside, begun_by_python, work_beside
from perfdoctor.observe.agent.callers import by_caller, is_same, outermost
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.patience import Patience
from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.span import Span, span_of
from perfdoctor.observe.agent.telling import collecting_ms, compiled, compiling_ms, first_times
from perfdoctor.observe.agent.threads import Reading, readings
from perfdoctor.observe.agent.timing import Timed, Timer
from perfdoctor.schema.recording import CollectionEvent, CompileEvent

TIMED_S = 1.0
"""Seconds for which steps are timed."""
TURN_S, TURN_CALLS = 0.5, 6
"""Seconds, and calls, that are timed at least in one of several turns."""
TIMING_S = 7.0
"""Seconds that it may take at most: programs whose steps take long are waited for."""
MOST_TIMED = 3
"""How often steps are timed at most, where something compiles for the first time meanwhile."""
SETTING_UP = 0.25
"""The share of the time in which steps are timed that may pass with what compiles for the first
time: with more, it is rather the set-up that was timed, of what another thread calls, say."""


class TimedSteps(NamedTuple):
    """Steps that were timed, and what the process did from before them until after them."""

    timer: Timer
    before: Mapping[int, Reading]
    after: Mapping[int, Reading]
    begin_ns: int
    end_ns: int

    @property
    def span(self) -> Span | None:
        """What a step took; None if no sequence of calls repeats."""
        return span_of(self.timer.calls, self.timer.begin_ns, self.timer.end_ns)

    @property
    def lasts_ms(self) -> float:
        """How long all of it took."""
        return (self.end_ns - self.begin_ns) / 1e6

    @property
    def faults(self) -> int:
        """How often threads that Python has not begun, XLA's, have touched a page that the kernel
        had to give them first: what Python loads lies elsewhere.
        """
        own, python = os.getpid(), {each.native_id for each in begun_by_python()}
        if own not in self.before or own not in self.after:
            return 0
        before, after = self.before[own].faults, self.after[own].faults
        return sum(count - before.get(n, 0) for n, count in after.items() if n not in python)

    def beside(self, step_ms: float, caller: int, events: Sequence[CollectionEvent]) -> Beside:
        """What others do in a step of so long, whose calls one thread makes. `events`: collections,
        of which those are counted that lie within the readings, as the processor time does.
        """
        steps, callers = self.lasts_ms / step_ms, {each.thread for each in self.timer.calls}
        found = work_beside(self.before, self.after, caller, callers, steps)
        others = [each for each in events if each.thread != caller]
        collected_ms = collecting_ms(others, self.begin_ns, self.end_ns)
        return replace(found, collecting_ms=collected_ms / steps)

    def compilations(self, events: Sequence[CompileEvent]) -> int:
        """How many programs were compiled meanwhile that had been compiled before."""
        return compiled(events, self.begin_ns, self.end_ns)

    def are_set_up(self, events: Sequence[CompileEvent]) -> bool:
        """Whether much was compiled for the first time meanwhile."""
        within = self.begin_ns, self.end_ns
        return compiling_ms(first_times(events, *within), *within) > SETTING_UP * self.lasts_ms


def timed_steps(
    jax: Any, hearing: Hearing, patience: Patience, compilation: CompilationWatch
) -> TimedSteps | None:
    """Time some steps; again where it is rather the set-up. None if none are made."""
    timed = None
    for _ in range(MOST_TIMED):
        latest = timed_once(jax, hearing, patience)
        timed = latest or timed
        if latest is None or not latest.are_set_up(compilation.events):
            break
    return timed


def timed_once(jax: Any, hearing: Hearing, patience: Patience) -> TimedSteps | None:
    """Time some steps; None if none are made."""
    timer = Timer(jax, TIMED_S)
    before, begin_ns = readings(), time.time_ns()
    if not is_told(timer, hearing, patience):
        return None
    return TimedSteps(timer, before, readings(), begin_ns, time.time_ns())


def is_told(timer: Timer, hearing: Hearing, patience: Patience) -> bool:
    """Have the timer hear of the program's calls; whether that was enough of them."""

    def has_begun() -> bool:
        return bool(timer.calls)

    return patience.listen(hearing, timer, timer.is_told, TIMING_S, has_begun, waits_long=True)


def usual_ms(
    jax: Any, hearing: Hearing, patience: Patience, probe: Probe, *, runs_ahead: bool
) -> float | None:
    """What a step, whose calls are the probe's, takes in one of several turns, without what is done
    now and then, which can't be told where the host runs ahead; None if none are made.
    """
    timer = Timer(jax, TURN_S, TURN_CALLS)
    if not is_told(timer, hearing, patience):
        return None
    span = span_of(timer.calls, timer.begin_ns, timer.end_ns)
    if span is None:
        return None
    rare_share = 0.0 if runs_ahead else span.rare_ms / span.step_ms
    steps = steps_in([each for each in timer.calls if each.end_ns <= timer.end_ns], probe.keys)
    found_ms = (1 - rare_share) * (timer.end_ns - timer.begin_ns) / 1e6 / steps if steps else 0.0
    return found_ms if found_ms > 0 else None  # something rare has taken all of it


def steps_in(calls: Sequence[Timed], keys: Sequence[Hashable]) -> float:
    """How many steps the calls are: what repeats in a few of them may be ten steps and a mean over
    them. `keys`: by which the functions of a step's calls are known again.
    """
    callers = by_caller(calls)
    made = outermost(callers[0]) if callers else []
    return sum(any(is_same(call.function, key) for key in keys) for call in made) / len(keys)
