"""JUnit, read back by junitparser."""

import pytest
from hypothesis import given, settings
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from perfdoctor.report.formats import rendered
from perfdoctor.report.inert import harmless
from perfdoctor.schema.report import Kind, Report
from tests.report.hostile import TEXTS, filled
from tests.report.reports import RECORDED, measured, of_recorded

RESULTS: dict[Kind, type | None] = {
    "issue": Failure,
    "crashed": Error,
    "not-measured": Skipped,
    "hint": None,
    "ok": None,
    "not-applicable": None,
}


def suite_of(report: Report) -> TestSuite:
    """The only suite."""
    (suite,) = JUnitXml.fromstring(rendered(report, "junit").encode())
    return suite


def result(case: TestCase) -> type | None:
    """Of a case: the class of its only result."""
    return type(case.result[0]) if case.result else None


@pytest.mark.parametrize("name", RECORDED)
def test_each_check_is_a_case_with_its_outcome(name: str) -> None:
    report = of_recorded(name)
    suite = suite_of(report)
    assert [case.name for case in suite] == [check.id for check in report.checks]
    expected = [RESULTS[check.outcome] for check in report.checks]
    assert [result(case) for case in suite] == expected
    counted = (suite.tests, suite.failures, suite.errors, suite.skipped)
    assert counted == (len(expected), *map(expected.count, (Failure, Error, Skipped)))


def test_a_failure_tells_the_fix_and_the_evidence() -> None:
    (failure,) = next(case for case in suite_of(of_recorded("slow_etl")) if case.result).result
    assert "the device waits" in failure.message
    lines = failure.text.splitlines()
    assert lines[0] == "perfdoctor/targets/reference/data.py:80"
    assert '[data] source = "records"' in lines
    assert any(line.startswith("· device busy: 11.73 ms/step") for line in lines)


def test_what_passed_tells_what_was_seen() -> None:
    case = next(case for case in suite_of(measured()) if not case.result)
    assert case.system_out.startswith("well: ")


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_hostile_text_comes_back_as_text(text: str) -> None:
    suite = suite_of(filled(text))
    failure = next(case for case in suite if case.name == "etl").result[0]
    told = " ".join((failure.message or "").split())
    assert told == " ".join(harmless(text).split())
