"""What was seen of a step's calls, as it is told to perfdoctor."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from perfdoctor.observe.agent.beside import Beside
from perfdoctor.observe.agent.calls import Probed, Prober
from perfdoctor.observe.agent.compilation import COMPILED, CompilationWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.span import Span
from perfdoctor.observe.agent.timing import Timer
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.recording import CollectionEvent, CompileEvent

FAULT_MS, NEW_SHARE = 1e-3, 0.1
"""What it takes to touch a new page of 4 KiB, which the kernel fills with zeros (a step with 6500
more of them took 6.9 ms longer); and the share of a step from which on that counts. Steps of five
scripts had fewer than 250 of them, or 31,000."""
OF_MALLOC = ("MALLOC_", "GLIBC_TUNABLES")
"""How the names begin of the variables that glibc's allocator reads."""


def step_calls(
    timer: Timer,
    prober: Prober,
    told: tuple[Span, Probe],
    beside: Beside,
    compilations: float,
    garbage: GarbageWatch,
    compilation: CompilationWatch,
) -> StepCalls:
    """The calls of a step, and what the host does beside them. `compilations`: in each step.

    What compiles for the first time while steps are timed is left out: a long run has it once.
    """
    span, probe = told
    since_epoch_ns = time.time_ns() - time.monotonic_ns()
    timed_ns = timer.begin_ns + since_epoch_ns, timer.end_ns + since_epoch_ns
    events = compilation.events
    first_ms = compiling_ms(first_times(events, *timed_ns), *timed_ns) / span.steps
    once_ms = min(first_ms, span.rare_ms)
    return StepCalls(
        calls=probe.calls,
        time_ms=span.step_ms - once_ms,
        steps=span.steps,
        timed_ns=timed_ns,
        covered=span.covered,
        threads=span.threads,
        is_asked=probe.asking is not None,
        in_main_thread=probe.thread == threading.main_thread().ident,
        ready=ready_share(prober.calls, probe.thread),
        rare_ms=span.rare_ms - once_ms,
        between_ms=span.between_ms,
        collecting_ms=collecting_ms(garbage.events, *timed_ns) / span.steps,
        collecting_beside_ms=beside.collecting_ms,
        compiling_ms=max(0.0, compiling_ms(events, *timed_ns) / span.steps - first_ms),
        compilations=compilations,
        delayed_ms=beside.delayed_ms,
        threads_cpu_ms=beside.threads_cpu_ms,
        threads_delayed_ms=beside.threads_delayed_ms,
        children_cpu_ms=beside.children_cpu_ms,
        children=beside.children,
    )


def reuses_memory(faults: float, step_ms: float, env: Mapping[str, str]) -> bool:
    """Whether what a step makes lies where something lay before, by its page faults: these take no
    part of the step that counts. Not where the environment tells the allocator what to do.
    """
    is_told = any(name.startswith(OF_MALLOC) for name in env)
    return not is_told and faults * FAULT_MS < NEW_SHARE * step_ms


def compiled(events: Sequence[CompileEvent], begin_ns: int, end_ns: int) -> int:
    """How many programs were compiled between two instants, of functions that had been compiled
    before.
    """
    ended = [e for e in events if e.phase == COMPILED and begin_ns <= e.end_ns <= end_ns]
    first = first_times(events, begin_ns, end_ns)
    return len(ended) - sum(each.phase == COMPILED for each in first)


def first_times(
    events: Sequence[CompileEvent], begin_ns: int, end_ns: int
) -> Sequence[CompileEvent]:
    """What ended between two instants of the first compilation of functions."""
    known = {e.function for e in events if e.phase == COMPILED and e.end_ns < begin_ns}
    found = []
    for event in events:
        if begin_ns <= event.end_ns <= end_ns and event.function not in known:
            found.append(event)
            if event.phase == COMPILED:
                known.add(event.function)
    return found


def compiling_ms(events: Iterable[CompileEvent], begin_ns: int, end_ns: int) -> float:
    """For how long something was traced, lowered or compiled."""
    spans = [(each.end_ns - round(each.seconds * 1e9), each.end_ns) for each in events]
    return covered_ms(spans, begin_ns, end_ns)


def collecting_ms(events: Iterable[CollectionEvent], begin_ns: int, end_ns: int) -> float:
    """For how long garbage was collected."""
    spans = [(each.start_ns, each.end_ns) for each in events]
    return covered_ms(spans, begin_ns, end_ns)


def covered_ms(spans: Iterable[tuple[int, int]], begin_ns: int, end_ns: int) -> float:
    """The time between two instants that is in any of the spans, which may overlap."""
    covered_ns, reached_ns = 0, begin_ns
    for first_ns, last_ns in sorted(spans):
        covered_ns += max(0, min(last_ns, end_ns) - max(first_ns, reached_ns))
        reached_ns = max(reached_ns, last_ns)
    return covered_ns / 1e6


def ready_share(calls: Sequence[Probed], caller: int) -> float:
    """The share of a thread's calls before which the results of the call before were computed."""
    told = [each.ready for each in calls if each.thread == caller and each.ready is not None]
    return fmean(told) if told else 0.0


def made_by(calls: StepCalls) -> list[tuple[str, list[tuple[int, ...]]]]:
    """The functions of a step's calls, and the shapes of their arguments."""
    return [(each.function, [leaf.shape for leaf in each.leaves]) for each in calls.calls]
