"""What all renderers of a Report say alike."""

import math

from perfdoctor.report.rank import interval
from perfdoctor.schema.fix import Fix, Gain
from perfdoctor.schema.report import CheckResult, Evidence, Finding, Kind, Report
from perfdoctor.schema.summary import StepSummary

OFTEN, MOST_CALLS = 0.5, 4
"""Calls a step, and functions, that are shown: of a step that is made of several jitted calls."""
WORTH_TELLING = 1.1
"""Times that steps were longer for being traced."""
WORTH_A_LINE = 0.1
"""Share of the step from which on the place of a part in the code is shown."""
HOST = {
    "etl": "loading",
    "gc": "collections",
    "dispatch": "dispatching the calls",
    "wait": "waiting for results",
    "logging": "logging",
    "other": "other Python",
}
"""The host's parts of a step, in words."""
BASES = {
    "measured": "measured",
    "replayed": "measured on the step alone",
    "estimated": "estimated",
}
"""Where a gain is from, in words."""
GROUPS: dict[Kind, str] = {
    "ok": "well",
    "hint": "hint",
    "not-applicable": "not applicable",
    "not-measured": "not measured",
    "crashed": "crashed",
}
"""Outcomes of checks that found nothing, in words and in the order in which they are told."""

MOST_ALONE = 1.1
"""Times what a step takes in the run: as far as a replay may be off to be taken for the same."""


def heading(report: Report) -> str:
    """What was examined, where."""
    env = report.environment
    vectors = [each for each in env.get("vector_sets", ()) if each in ("avx", "avx2", "avx512f")]
    cores = [f"{env['cores']:g} cores"] if "cores" in env else []
    machine = [env["backend"] or "no backend", *cores, *vectors[-1:]]
    jax = env["packages"].get("jax", "not installed")
    place = ", ".join(machine)
    return f"perfdoctor {report.perfdoctor} · check {report.target.name} · {place} · jax {jax}"


def taken_and_alone(steps: StepSummary | None) -> tuple[float, float] | None:
    """Milliseconds of a step in the run, and of the same step alone; None if one is not known, or
    alone it takes longer: then the replay says nothing of the run.
    """
    if steps is None:
        return None
    taken_ms, alone_ms = steps.get("untraced_ms"), steps.get("alone_ms")
    if not taken_ms or alone_ms is None or alone_ms > MOST_ALONE * taken_ms:
        return None
    return taken_ms, alone_ms


def distance(steps: StepSummary | None) -> str:
    """How far the run is from what its own step can do here, if that is known."""
    known = taken_and_alone(steps)
    if known is None:
        return ""
    taken_ms, alone_ms = known
    share = min(1.0, alone_ms / taken_ms)
    return (
        f"A step takes {taken_ms:.3g} ms in this run and {alone_ms:.3g} ms alone: the run trains "
        f"at {share:.0%} of what its own step can do here. "
    )


def sentence(report: Report) -> str:
    """What was found, in one sentence."""
    count = len(report.findings)
    if count == 0:
        if report.steps is None:
            unseen = [c for c in report.checks if c.outcome in ("not-measured", "crashed")]
            return f"No training steps were measured{why(unseen)}."
        number = counted(len(report.checks), "check")
        return f"No cause of slowness found in {number}{gaps(report)}.{rest(report)}"
    first = report.findings[0]
    causes = counted(count, "cause")
    if first.gain is None:
        return f"{causes}, the first keeps the training from running as it could: {first.check}."
    gain = report.combined_gain or first.gain
    speed = ""
    if not distance(report.steps):
        speed = f"This run trains at {1 / gain.speedup:.0%} of the speed that it could have here. "
    which = (
        "its fix" if count == 1 else "all fixes together" if report.combined_gain else "the first"
    )
    return f"{speed}{causes}, {which}: {interval(gain)}, {BASES[gain.basis]}."


def gaps(report: Report) -> str:
    """What keeps the answer from being whole: checks that could not be made, and those that
    crashed, by their names.
    """
    unmade = [each for each in report.checks if each.outcome == "not-measured"]
    crashed = [each.id for each in report.checks if each.outcome == "crashed"]
    parts = [f"{counted(len(unmade), 'check')} could not be made"] if unmade else []
    parts += [f"{', '.join(crashed)} crashed"] if crashed else []
    return "".join(f"; {part}" for part in parts)


def counted(number: int, noun: str) -> str:
    """1 check, 2 checks."""
    return f"{number} {noun}{'s' * (number != 1)}"


def rest(report: Report) -> str:
    """Where the time goes that a step takes beside what it takes alone, if no cause explains it."""
    known = taken_and_alone(report.steps)
    if known is None or report.steps is None:
        return ""
    taken_ms, alone_ms = known
    lost_ms, least_ms = taken_ms - alone_ms, WORTH_A_LINE * taken_ms
    if lost_ms < least_ms:
        return ""
    parts = {name: ms for name, ms in report.steps["parts_ms"].items() if name in HOST}
    largest = max(parts, key=lambda name: parts[name], default="")
    text = f" No finding explains the {lost_ms:.3g} ms that a step takes beyond that"
    if parts.get(largest, 0.0) < least_ms:
        return f"{text}."
    idle = f"{parts[largest]:.3g} ms of {HOST[largest]} while the device idles"
    return f"{text}; there are {idle}."


def why(unseen: list[CheckResult]) -> str:
    """The first reason, if there is one."""
    return f": {unseen[0].summary}" if unseen else ""


def caution(fix: Fix) -> str:
    """What the fix does to the trained model."""
    return {"no": "", "numerics": "; results change by rounding", "training": "; changes training"}[
        fix.changes_results
    ]


def advice(finding: Finding) -> str:
    """What the fix does, what it does to the trained model, and what it gains after the others."""
    return f"→ {finding.fix.summary}{caution(finding.fix)}{remainder(finding)}"


def in_full(finding: Finding) -> str:
    """What was seen, what its fix gains, and the fix; a line each."""
    lines = (finding.summary, gain_text(finding.gain), advice(finding), finding.fix.how)
    return "\n".join(filter(None, lines))


def remainder(finding: Finding) -> str:
    """What it gains once the fixes of the better findings are made."""
    remaining = finding.remaining_gain
    if remaining is None or remaining == finding.gain:
        return ""
    return f"; {interval(remaining)} on top of the fixes above"


def cost(finding: Finding, time_ms: float | None) -> str:
    """The part of a step, or of a launch, that the fix saves for the same number of samples."""
    gain, change = finding.gain, finding.fix.change
    if gain is None or time_ms is None:
        return ""
    share = 1 - 1 / gain.speedup
    if change is not None and change.speeds_up == "launch":
        return f"of a launch  {share:.0%}"
    return f"{time_ms * share:.1f} ms  {share:.0%}"


def gain_text(gain: Gain | None) -> str:
    """The gain with its interval and where it comes from."""
    return "" if gain is None else f"{interval(gain)} {BASES[gain.basis]}"


def share_of(part: float, total: float) -> float:
    """The share that a part is of a whole, from 0 to 1; whatever the two numbers are."""
    return min(1.0, max(0.0, part / total)) if 0 < total < math.inf else 0.0


def scatter(steps: StepSummary) -> str:
    """What a step is made of, and how they differ."""
    calls = {name: count for name, count in steps["calls"].items() if count >= OFTEN}
    text = ""
    if 1 < len(calls) <= MOST_CALLS:
        text = " + ".join(f"{count:.2g}× {name}()" for name, count in calls.items()) + "; "
    if not steps.get("is_traced", True):
        return f"{text}told by its jitted calls alone, without a trace"
    text += f"median {steps['median_ms']:.2f} ms, 95% below {steps['p95_ms']:.2f} ms"
    if steps["outliers"]:
        text += (
            f"; {steps['outliers']} of {steps['count']} took over three times the median, "
            f"{steps['outlier_share']:.0%} of the time"
        )
    if steps["slowed"] >= WORTH_TELLING:
        text += f"; {steps['slowed']:.1f} times as long while it was traced"
    return text


def busiest(steps: StepSummary, part: str) -> str:
    """The line in which the main thread was most, for one part of the step."""
    found = [each for each in steps["places"] if each["part"] == part]
    if not found:
        return ""
    share, function, place = (found[0][key] for key in ("share", "function", "place"))
    return f"{share:.0%} of the main thread's time in {function}() ({place})"


def fact(evidence: Evidence) -> str:
    """One fact with its unit, and where it was read: `waits: 2 a step (trace)`."""
    return f"{evidence.name}: {value(evidence)} ({evidence.source})"


def value(evidence: Evidence) -> str:
    """The number with its unit; four digits say enough."""
    seen = evidence.value
    if isinstance(seen, bool) or seen is None:
        return {True: "yes", False: "no", None: "none"}[seen]
    if isinstance(seen, float):
        return f"{seen:.4g} {evidence.unit}".rstrip()
    return f"{seen} {evidence.unit}".rstrip()
