"""Compilations that come again: in the traced window, or told of a whole run."""

from msgspec import structs

from perfdoctor import (
    Change,
    Compile,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    estimated,
    issue,
    not_measured,
    ok,
    spared,
)
from perfdoctor_checks._explanations import FIXES, explained
from perfdoctor_checks._limits import LEAST_SHARE, RECURRING
from perfdoctor_checks._repeats import Repeats, keeps_coming, repeats_of


def without_steps(observation: Observation, compiles: tuple[Compile, ...]) -> Outcome:
    """Where no steps were seen, compiling may be all that there is."""
    again = dominating(compiles)
    if not again:
        return not_measured("no steps were seen, and no function was compiled again and again")
    spent = sum(one.seconds for each in again.values() for one in each)
    share = spent / max(span_s(compiles, again), spent)
    return told_of_run(observation, compiles, again, share, ", as if in every step")


def while_timed(observation: Observation, compiles: tuple[Compile, ...]) -> Outcome:
    """By how much of the timed steps compiling took."""
    calls, again = observation.calls, dominating(compiles)
    share = min(1.0, calls.compiling_ms / calls.time_ms) if calls is not None else 0.0
    if not again or share < LEAST_SHARE:
        return ok("nothing is compiled again and again while steps were timed", total(compiles))
    return told_of_run(observation, compiles, again, share, "")


def dominating(compiles: tuple[Compile, ...]) -> Repeats:
    """The functions that took most of the compiling, again and again; JAX explains only those of
    the user.
    """
    again = {
        name: each
        for name, each in repeats_of(compiles).items()
        if keeps_coming(each) and any(one.reason for one in each)
    }
    spent = sum(one.seconds for each in again.values() for one in each)
    return again if spent > 0 and spent >= sum(one.seconds for one in compiles) / 2 else {}


def span_s(compiles: tuple[Compile, ...], again: Repeats) -> float:
    """From the first compilation of these functions to their last one."""
    first_s = min(each.at_s for each in compiles if each.function in again)
    return max(each[-1].at_s for each in again.values()) - first_s


def told_of_run(
    observation: Observation,
    compiles: tuple[Compile, ...],
    again: Repeats,
    share: float,
    how_often: str,
) -> Outcome:
    """The issue, by all compilations of the run. `share`: of the time of the steps."""
    lost = {name: sum(one.seconds for one in each) for name, each in again.items()}
    worst = max(again, key=lost.__getitem__)
    count, others = len(again[worst]), len(again) - 1
    within_s = max(span_s(compiles, again), sum(lost.values()))
    summary = (
        f"{worst} was compiled {count + 1} times in {within_s:.1f} s{how_often}, "
        f"{lost[worst] / count * 1e3:.0f} ms each"
    )
    summary += f", and {others} other function{'s' * (others != 1)} too" if others else ""
    facts = [*(repeated(name, each, lost[name]) for name, each in again.items()), total(compiles)]
    reason = again[worst][-1].reason
    return told(observation, summary, reason, facts, without(share, recurs(reason)))


def recurs(reason: str | None) -> bool:
    """Whether it is a shape that differs."""
    return explained(reason)[0] == "shape"


def told(
    observation: Observation, summary: str, reason: str | None, facts: list[Evidence], gain: Gain
) -> Outcome:
    """The issue, with what jax says of its cause."""
    kind, why = explained(reason)
    facts.append(Evidence("traced again since", why, "", "jax_explain_cache_misses"))
    return issue(f"{summary}; {why}", facts, [fix(observation, kind)], gain)


def without(lost: float, recurs: bool) -> Gain:
    """The same steps without the compilations that take this share of the time.

    Beside an observer compiling takes longer, and it holds up what runs beside it: half of it is
    sure, and twice as much possible. `recurs`: what differs comes back, as the shapes of a data set
    do: some of the compilations are the last of their kind.
    """
    counted = spared(1.0, lost, lost, lost).speedup - 1
    likely, low = (1 / 2, RECURRING) if recurs else (1, 1 / 2)
    return estimated(1 + likely * counted, 1 + low * counted, 1 + 2 * counted)


def repeated(name: str, compiles: list[Compile], seconds: float) -> Evidence:
    """How often and how long a function was compiled again."""
    unit = f"repeats, {seconds:.2f} s in all"
    return Evidence(name, len(compiles), unit, "jax.monitoring: backend_compile_duration")


def total(compiles: tuple[Compile, ...]) -> Evidence:
    """All compilations of the run."""
    seconds = sum(each.seconds for each in compiles)
    unit = f"in the run, {seconds:.1f} s in all"
    source = "jax.monitoring: backend_compile_duration"
    return Evidence("compilations", len(compiles), unit, source)


def fix(observation: Observation, kind: str) -> Fix:
    """The fix, by the cause; the reference loop's own decay is a line of its workload."""
    workload = observation.target.workload
    if workload is not None and workload.training.schedule == "static":
        return Fix(
            summary="pass the learning rate's decay as an array, not as a static argument",
            how='[training] schedule = "traced"',
            change=Change(workload={"training.schedule": "traced"}),
        )
    return structs.replace(FIXES[kind], change=Change(step={"compiled": "once"}))
