"""Lays two Reports side by side: which causes are gone, what that brought, which are new."""

from collections.abc import Iterator, Mapping

from perfdoctor import __version__
from perfdoctor.schema.difference import Difference, Side, Stayed
from perfdoctor.schema.report import CheckResult, Report
from perfdoctor.schema.summary import StepSummary

CANT_TELL = ("not-measured", "crashed")
"""Outcomes of a check that say nothing of its cause."""
MACHINE = {"cpu": "CPU", "cores": "cores", "backend": "backend", "devices": "devices"}
"""Keys of the environment that must be equal, in words."""


def side_by_side(before: Report, after: Report, names: tuple[str, str]) -> Difference:
    """`names`: of the files that they were read from."""
    old = {each.check: each for each in before.findings}
    new = {each.check: each for each in after.findings}
    said = {each.id: each for each in after.checks}
    dark = {name for name in old if name not in said or said[name].outcome in CANT_TELL}
    return Difference(
        schema="perfdoctor.difference/1",
        perfdoctor=__version__,
        before=side(before, names[0]),
        after=side(after, names[1]),
        speedup=speedup(before, after),
        gone=tuple(each for name, each in old.items() if name not in new and name not in dark),
        new=tuple(each for name, each in new.items() if name not in old),
        stayed=tuple(Stayed(before=old[n], after=new[n]) for n in old if n in new),
        unclear=tuple(said.get(name) or unasked(name) for name in old if name in dark),
        cautions=tuple(cautions(before, after)),
    )


def unasked(name: str) -> CheckResult:
    """A check that was not made."""
    return CheckResult(id=name, outcome="not-measured", summary="this check was not made")


def side(report: Report, name: str) -> Side:
    """What is told of one."""
    return Side(
        name=name,
        created=report.created,
        target=report.target,
        environment=report.environment,
        steps=report.steps,
    )


def speedup(before: Report, after: Report) -> float | None:
    """Throughput after over before: steps a second, times the examples of a step where both tell
    how many these are.
    """
    if before.steps is None or after.steps is None:
        return None
    old_ms, new_ms = (lengths_ms(each) for each in (before.steps, after.steps))
    which = 0 if old_ms[0] and new_ms[0] else 1  # like is compared with like
    slow, fast = old_ms[which], new_ms[which]
    old, new = before.steps.get("batch_size"), after.steps.get("batch_size")
    return slow / fast * (new / old if old and new else 1.0) if slow and fast else None


def lengths_ms(steps: StepSummary) -> tuple[float | None, float]:
    """How long a step takes, in ms: while nothing was traced (None if not known), and while it was
    traced.
    """
    return steps.get("untraced_ms"), steps["time_ms"]


def cautions(before: Report, after: Report) -> Iterator[str]:
    """Why the two can hardly be compared."""
    if before.target != after.target and "observation" not in (
        before.target.kind,
        after.target.kind,
    ):
        yield f"other targets: {command(before)}, then {command(after)}"
    for key, name in MACHINE.items():
        old, new = machine(before).get(key), machine(after).get(key)
        if old != new:
            yield f"another {name}: {told(old)}, then {told(new)}"


def machine(report: Report) -> Mapping[str, object]:
    """The environment by key."""
    return dict(report.environment)


def command(report: Report) -> str:
    """What was examined, as it was called."""
    return " ".join([report.target.name, *report.target.args])


def told(value: object) -> str:
    """A value of the environment."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
