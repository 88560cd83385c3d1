"""The Report as JUnit XML: a test case for each check."""

from typing import Any

from perfdoctor.report.suite import junitparser, suite
from perfdoctor.report.words import GROUPS, fact, in_full
from perfdoctor.schema.report import CheckResult, Finding, Report


def render(report: Report) -> str:
    """An issue is a failure, a check that crashed an error, one that could not look is skipped."""
    findings = {each.check: each for each in report.findings}
    cases = (case(report, each, findings.get(each.id)) for each in report.checks)
    return suite(f"perfdoctor check {report.target.name}", cases)


def case(report: Report, check: CheckResult, finding: Finding | None) -> Any:
    """One check; what passes tells in its output what was seen."""
    library = junitparser()
    made = library.TestCase(check.id, report.target.name)
    if finding is not None:
        failure = library.Failure(finding.summary, check.id)
        failure.text = details(finding)
        made.result = [failure]
    elif check.outcome == "crashed":
        made.result = [library.Error(check.summary, check.id)]
    elif check.outcome == "not-measured":
        made.result = [library.Skipped(check.summary)]
    else:
        made.system_out = f"{GROUPS.get(check.outcome, check.outcome)}: {check.summary}"
    return made


def details(finding: Finding) -> str:
    """Where it is, the finding, and on what it rests."""
    place = finding.location
    where = [f"{place.file}:{place.line}"] if place else []
    return "\n".join([*where, in_full(finding), *(f"· {fact(each)}" for each in finding.evidence)])
