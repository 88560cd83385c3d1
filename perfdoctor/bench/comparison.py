"""Pairs of a baseline and a candidate, until it is clear whether the candidate is slower."""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from perfdoctor.bench.decision import (
    CONFIRMED_AFTER,
    LOOKS,
    Estimate,
    Verdict,
    estimate,
    verdict,
)
from perfdoctor.bench.pairs import STEP_TIME, Pair
from perfdoctor.schema.benchmark import Compared, Comparison, Exact, ExactChange
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.trials.live import OutOfTime, WorkerEnded

OfAll = Literal["regressed", "pass", "improved", "inconclusive"]
GATED = (STEP_TIME, "compile_time")
"""Metrics that decide whether a comparison passes."""
TOLD = ("cpu_time", "first_step", "peak_memory")
"""Metrics that are told beside them, and decide nothing."""
LONG_COMPILE_S = 2.0
"""Seconds of compilation from which on its time is gated: some percent of a shorter one are noise,
and matter to nobody."""
NAMES = {
    "step_time": "step",
    "compile_time": "compilation",
    "cpu_time": "CPU time of a step",
    "first_step": "time to the first step",
    "peak_memory": "peak memory",
}
"""What the metrics are called in a verdict."""
SUMS = ("flops", "bytes_accessed", "temp_bytes", "programs")
"""Numbers that are sums over a step's programs, and can't be compared with those of a single
program."""


def compared(
    play: Callable[[float], Pair],
    against: str,
    threshold: float,
    until: float,
    say: Callable[[str], None],
    gated: Sequence[str] = GATED,
) -> Comparison:
    """Play pairs and look at them, up to the last of LOOKS or the end of the budget.

    `play`: one pair, that has to be over by an instant of time.monotonic(). `gated`: the metrics
    that have to be decided. Raises NothingMeasured if not even the first pair could be played.
    """
    start = time.monotonic()
    pairs: list[Pair] = []
    last_s, why_ended, failed = 0.0, "", False
    for count in LOOKS:
        while len(pairs) < count and not why_ended:
            if time.monotonic() + last_s > until:
                why_ended = "the budget ended"
                break
            say(f"pair {len(pairs) + 1}")
            began = time.monotonic()
            try:
                pairs.append(play(until))
            except OutOfTime:
                why_ended = "the budget ended"
            except WorkerEnded as error:
                why_ended, failed = str(error), True
            last_s = time.monotonic() - began
        if why_ended or decided(looked_at(pairs, threshold, gated), gated, threshold):
            break
    if len(pairs) < 2:
        raise NothingMeasured(f"no comparison: {why_ended} before two pairs were measured")
    found = judged(pairs, against, threshold, gated, time.monotonic() - start, why_ended)
    return without_verdict(found, why_ended) if failed else found


def without_verdict(found: Comparison, why: str) -> Comparison:
    """The comparison without its verdict: what the launches that went well say is no verdict, if
    the next one failed.
    """
    summary = f"no verdict: after {found.pairs} pairs a launch failed: {why}"
    return replace(found, verdict="inconclusive", summary=summary)


def gated_of(compiling_s: Sequence[float], programs: Sequence[str | None]) -> tuple[str, ...]:
    """The step time; and the time of compiling, where it is long and another step is compiled.

    Of both sides: how long they compile, and the hash of the step's program if it was seen.
    """
    before, after = programs
    same = before is not None and before == after
    return (STEP_TIME,) if same or max(compiling_s) < LONG_COMPILE_S else GATED


def looked_at(
    pairs: Sequence[Pair], threshold: float, gated: Sequence[str] = GATED
) -> dict[str, Estimate]:
    """What the pairs say of each metric; a number of pairs between two LOOKS is the later one.

    Each gated metric is tested at its share of the error, the surest first; one that is found to
    have regressed leaves its share to the others (Holm 1979).
    """
    look = min(bisect_left(LOOKS, len(pairs)), len(LOOKS) - 1)

    def of(name: str, metrics: int) -> Estimate:
        contrasts = [pair.contrasts[name] for pair in pairs]
        controls = [pair.controls[name] for pair in pairs]
        return estimate(contrasts, controls, look, metrics)

    known = [name for name in (*GATED, *TOLD) if all(name in pair.contrasts for pair in pairs)]
    found = {name: of(name, len(gated)) for name in known}
    ordered = sorted((name for name in known if name in gated), key=lambda name: found[name].p)
    for sharing, name in zip(range(len(gated), 0, -1), ordered, strict=False):
        found[name] = of(name, sharing)
        if verdict_on(found[name], threshold) != "regressed":
            found |= {other: of(other, sharing) for other in ordered[ordered.index(name) :]}
            break
    return found


def decided(found: Mapping[str, Estimate], gated: Sequence[str], threshold: float) -> bool:
    """Whether there is a verdict on each gated metric, or one of them is surely worse."""
    judged_on = [found[name] for name in gated if name in found]
    verdicts = [verdict_on(each, threshold) for each in judged_on]
    if "regressed" in verdicts:
        return judged_on[0].pairs >= CONFIRMED_AFTER
    return None not in verdicts


def verdict_on(found: Estimate, threshold: float) -> Verdict | None:
    """The verdict on one metric; None where the control fails, or nothing is clear yet."""
    return verdict(found, threshold) if found.control_holds else None


def judged(
    pairs: Sequence[Pair],
    against: str,
    threshold: float,
    gated: Sequence[str],
    seconds: float,
    why_ended: str,
) -> Comparison:
    """All that the pairs say."""
    found = looked_at(pairs, threshold, gated)
    verdicts = {name: verdict_on(found[name], threshold) for name in gated if name in found}
    overall: OfAll = "pass"
    if "regressed" in verdicts.values():
        overall = "regressed"
    elif None in verdicts.values():
        overall = "inconclusive"
    elif "improved" in verdicts.values():
        overall = "improved"
    undecided = [name for name, answer in verdicts.items() if answer is None]
    if overall == "inconclusive":
        summary = what_is_open(found[undecided[0]], undecided[0], threshold, seconds, why_ended)
    else:
        names = [name for name, answer in verdicts.items() if answer == overall]
        summary = "; ".join(told(name, found[name]) for name in names)
    return Comparison(
        against=against,
        how="live pairs",
        threshold=threshold,
        verdict=overall,
        summary=summary,
        pairs=len(pairs),
        seconds=seconds,
        metrics=tuple(
            Compared(
                name=name,
                gated=name in verdicts,
                verdict=(verdicts[name] or "inconclusive") if name in verdicts else None,
                change=each.change,
                low=each.low,
                high=each.high,
                visible=each.visible,
                by_pair=tuple(math.expm1(pair.contrasts[name]) for pair in pairs),
                control_by_pair=tuple(math.expm1(pair.controls[name]) for pair in pairs),
            )
            for name, each in found.items()
        ),
        exact=(),
        causes=(),
    )


def told(name: str, found: Estimate) -> str:
    """A change with its interval, in words."""
    direction = "longer" if found.change >= 0 else "shorter"
    change = f"{NAMES[name]} {abs(found.change):.1%} {direction}"
    return f"{change} ({found.low:+.1%} to {found.high:+.1%})"


def what_is_open(
    found: Estimate, name: str, threshold: float, seconds: float, why_ended: str
) -> str:
    """Why there is no verdict on a metric, and what would bring one."""
    if not found.control_holds:
        return (
            f"two launches of the baseline itself differ by {abs(found.control):.1%} in "
            f"{NAMES[name]}, so there is no verdict; is the machine busy?"
        )
    half = found.high - found.change
    gap = max(abs(threshold - found.change), threshold / 4)
    needed_s = seconds * max(1.0, (half / gap) ** 2)
    ended = f" when {why_ended}" if why_ended else ""
    return (
        f"{told(name, found)} after {found.pairs} pairs{ended}: not decided; a slowdown of "
        f"{found.visible:.1%} would have been found, and about {needed_s:.0f} s would decide it"
    )


def exact_changes(before: Exact | None, after: Exact | None) -> tuple[ExactChange, ...]:
    """What no noise touches, where it differs."""
    if before is None or after is None:
        return ()
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    alike = (before.programs is None) == (after.programs is None)
    return tuple(
        ExactChange(name=name, before=old[name], after=new[name])
        for name in old
        if old[name] != new[name] and (alike or name not in SUMS)
    )
