"""Reports of recorded observations, and the text that is expected of them (see tests/golden.py)."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from perfdoctor.catalogue import checks, chosen
from perfdoctor.doctor import diagnosed
from perfdoctor.report.formats import rendered
from perfdoctor.report.locations import every_place, located, resolved
from perfdoctor.report.screen import Detail, Screen
from perfdoctor.report.terminal import render
from perfdoctor.schema.fix import Change, Fix, Tried
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import CheckResult, Report, ReportTarget
from perfdoctor.schema.run import Failure
from perfdoctor_checks import etl, gc
from tests.command import ROOT
from tests.recorded import FOLDER, recorded

GOLDEN = Path(__file__).parent / "golden"
RECORDED = sorted(file.stem for file in FOLDER.glob("*.json"))
"""The names of all recorded Observations."""
OURS = [file.relative_to(ROOT).as_posix() for file in ROOT.glob("perfdoctor/targets/**/*.py")]
"""The files of this repository that the recorded runs were running."""
SEVEN = ("avx", "backend", "batch-size", "competing-processes", "dtype", "etl", "gc")
"""Named, so that a new check does not change the golden files."""


def report_of(observation: Observation) -> Report:
    """The report, without what changes from release to release."""
    name = f"{observation.target.name.rpartition('/')[2].removesuffix('.toml')}.json"
    target = ReportTarget(kind="observation", name=name, args=())
    report = diagnosed(observation, chosen(checks(), SEVEN, ()), 0.05, target)
    return replace(report, perfdoctor="0.1.0", created="2026-11-21T07:00:00Z")


@cache
def of_recorded(name: str) -> Report:
    """The report of a recorded Observation, by all checks, with the lines of this repository."""
    target = ReportTarget(kind="observation", name=f"{name}.json", args=())
    report = diagnosed(recorded(name), checks(), 0.05, target)
    report = located(report, resolved(every_place(report), OURS, ROOT.name, target.name))
    return replace(report, perfdoctor="0.1.0", created="2026-11-21T07:00:00Z")


def many(count: int) -> Report:
    """A report with so many findings, each with all that it may have."""
    report = measured()
    first = report.findings[0]
    findings = tuple(replace(first, check=f"check-{n}", rank=n) for n in range(1, count + 1))
    results = tuple(
        CheckResult(id=each.check, outcome="issue", summary=each.summary) for each in findings
    )
    return replace(report, findings=findings, checks=results)


def tried(check: str, fix: Fix, *speedups: float) -> Tried:
    """A trial that measured these gains, a pair each, without noise of its slices."""
    pairs = tuple((math.log(speedup),) * 5 for speedup in speedups)
    return Tried(check=check, fix=fix, log_ratios=pairs)


def healthy() -> Report:
    """Nothing found."""
    return report_of(recorded("healthy"))


def estimated() -> Report:
    """An issue that was not tried."""
    return report_of(recorded("slow_etl"))


def measured() -> Report:
    """Two issues that were tried, alone and together; one of the fixes could not be run."""
    seen, pressed = recorded("slow_etl"), recorded("gc_pressure")
    assert seen.steps is not None and pressed.steps is not None
    steps = replace(
        seen.steps,
        exposed_gc_ms=2.0,
        gc_ms=2.5,
        exposed_etl_ms=seen.steps.exposed_etl_ms - 2.0,
    )
    both = replace(seen, steps=steps, garbage=pressed.garbage)
    waits, pauses = etl.check(both).fixes, gc.check(both).fixes
    together = Fix(summary="all fixes together", how="all fixes together", change=Change())
    trials = (
        tried("etl", waits[0], 1.98, 2.02),
        Tried(check="etl", fix=waits[1], failure="out of memory"),
        tried("gc", pauses[0], 1.10, 1.12, 1.11),
        tried("", together, 2.3),
    )
    return report_of(replace(both, tried=trials))


def disproved() -> Report:
    """An issue whose fix gained nothing when it was tried."""
    seen = recorded("slow_etl")
    return report_of(replace(seen, tried=(tried("etl", etl.check(seen).fixes[0], 1.0, 1.01),)))


def no_backend() -> Report:
    """A run that ended before anything could be measured."""
    seen = recorded("healthy")
    failure = Failure(stage="import", kind="raised", message="No module named 'jax'", seconds=0.1)
    reasons = dict.fromkeys(("steps", "garbage", "program", "load"), "jax could not be imported")
    reasons["backend"] = reasons["steps"]
    bare = Observation(
        schema=seen.schema,
        perfdoctor=seen.perfdoctor,
        created=seen.created,
        target=seen.target,
        host=seen.host,
        failure=failure,
        not_measured=reasons,
    )
    return report_of(bare)


REPORTS: dict[str, Callable[[], Report]] = {
    make.__name__: make for make in (healthy, estimated, measured, disproved, no_backend)
}


def golden_texts() -> dict[str, str]:
    """File names and what must stand in them."""
    texts = {f"{name}.txt": render(make()) for name, make in REPORTS.items()}
    texts["measured_narrow.txt"] = render(measured(), Screen(width=60))
    texts["measured_wide.txt"] = render(measured(), Screen(width=200))
    texts["disproved_verbose.txt"] = render(disproved(), Screen(detail=Detail.verbose))
    texts["measured_quiet.txt"] = render(measured(), Screen(detail=Detail.quiet))
    for name in RECORDED:
        for format, ending in (("terminal", "txt"), ("markdown", "md")):
            texts[f"recorded/{name}.{ending}"] = rendered(of_recorded(name), format)
    return texts
