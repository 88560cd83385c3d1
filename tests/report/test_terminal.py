from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.report.screen import Detail, Screen
from perfdoctor.report.terminal import render
from perfdoctor.report.words import sentence
from perfdoctor.schema.report import CheckResult, Report
from tests.report.reports import RECORDED, REPORTS, disproved, healthy, many, measured, of_recorded

NARROW = 60


def results(*outcomes: Any) -> Report:
    """A report of nothing but these outcomes."""
    checks = (CheckResult(id=f"c{n}", outcome=o, summary="why") for n, o in enumerate(outcomes))
    return replace(healthy(), checks=tuple(checks))


@pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)
def test_only_lines_to_paste_are_longer_than_a_narrow_terminal(make: Callable[[], Report]) -> None:
    report = make()
    long = [
        line for line in render(report, Screen(width=NARROW)).splitlines() if len(line) > NARROW
    ]
    pasted = tuple(finding.fix.how for finding in report.findings)
    assert all(line.endswith(pasted) for line in long), long


def test_a_line_to_paste_is_never_broken() -> None:
    report = measured()
    lines = render(report, Screen(width=NARROW)).splitlines()
    for finding in report.findings:
        assert any(line.endswith(f"  {finding.fix.how}") for line in lines)


@pytest.mark.parametrize("width", [30, 60, 100, 200])
@pytest.mark.parametrize("detail", Detail)
def test_no_line_ends_in_spaces_and_the_text_ends_in_one_newline(
    width: int, detail: Detail
) -> None:
    text = render(measured(), Screen(width=width, detail=detail))
    assert all(line == line.rstrip() for line in text.splitlines())
    assert text.endswith("\n") and not text.endswith("\n\n")


@pytest.mark.parametrize("detail", [Detail.normal, Detail.verbose])
def test_escape_codes_only_in_colour(detail: Detail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in render(measured(), Screen(detail=detail))
    assert "\x1b[" in render(measured(), Screen(detail=detail, colour=True))


def test_colour_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Text.from_ansi(render(measured(), Screen(colour=True))).plain
    assert [line.rstrip() for line in coloured.splitlines()] == render(measured()).splitlines()


@pytest.mark.parametrize("detail", [Detail.normal, Detail.verbose])
def test_brackets_and_colons_in_what_is_reported_are_no_markup(detail: Detail) -> None:
    report = disproved()
    odd = CheckResult(id="odd", outcome="crashed", summary="KeyError: '[bold]' in a[/b] :warning:")
    text = render(replace(report, checks=(*report.checks, odd)), Screen(detail=detail, width=200))
    assert "KeyError: '[bold]' in a[/b] :warning:" in text


def test_verbose_names_every_check_with_its_outcome() -> None:
    report = measured()
    lines = render(report, Screen(detail=Detail.verbose, width=200)).splitlines()
    for check in report.checks:
        assert [check.id, check.outcome] in [line.split()[:2] for line in lines]


def test_every_check_is_named_somewhere() -> None:
    report = measured()
    words = render(report, Screen(width=200)).split()
    assert {check.id for check in report.checks} <= set(words)


def test_checks_with_the_same_reason_share_a_line() -> None:
    text = render(results("not-measured", "ok", "not-measured", "not-applicable"))
    assert " not measured: c0 c2: why\n" in text
    assert " not applicable: c3: why\n" in text
    assert " well: c1\n" in text


def test_the_sentence_of_a_run_with_unseen_parts_says_so() -> None:
    assert sentence(results("ok", "crashed", "not-measured")) == (
        "No cause of slowness found in 3 checks; 1 check could not be made; c1 crashed."
    )
    assert sentence(results("not-measured", "not-measured")) == (
        "No cause of slowness found in 2 checks; 2 checks could not be made."
    )


def test_the_sentence_of_a_run_that_told_nothing_says_so() -> None:
    told_nothing = replace(results("not-measured", "ok"), steps=None)
    assert sentence(told_nothing) == "No training steps were measured: why."


def test_the_sentence_names_the_speed_with_all_fixes() -> None:
    report = measured()
    assert sentence(report) == (
        "This run trains at 43% of the speed that it could have here. "
        "2 causes, all fixes together: 2.30× (1.97–2.68), measured."
    )
    assert "2 causes, the first: 2.00×" in sentence(replace(report, combined_gain=None))


def test_a_step_is_called_traced_only_where_nothing_told_how_long_it_is_without_a_trace() -> None:
    report = healthy()
    assert "a step, traced, 8.97 ms" in render(report)
    told = render(replace(report, steps={**(report.steps or {}), "slowed": 1.26}))
    assert "a step, 8.97 ms" in told
    assert "; 1.3 times as long while it was traced" in " ".join(told.split())


def test_that_the_run_failed_after_its_steps_is_said() -> None:
    report = healthy()
    failed = replace(report, steps={**(report.steps or {}), "failed": "ValueError: no data"})
    assert "after these steps the run failed: ValueError: no data" in render(failed)
    assert "failed" not in render(report)


def test_a_report_without_steps_has_no_bar() -> None:
    assert "a step," not in render(replace(healthy(), steps=None))
    assert "a step," in render(healthy())


@pytest.mark.parametrize(
    ("dispatch_ms", "taken_ms", "said"),
    [
        (1.4, 1.65, " there are 1.4 ms of dispatching the calls while the device idles."),
        (0.01, 1.65, "beyond that."),  # nothing is guessed
        (1.4, 0.21, None),
    ],
)
def test_a_run_without_findings_says_what_is_left(
    dispatch_ms: float, taken_ms: float, said: str | None
) -> None:
    parts = {"device": 0.2, "etl": 0.0, "gc": 0.0, "dispatch": dispatch_ms, "wait": 0.0}
    steps = {"untraced_ms": taken_ms, "alone_ms": 0.2, "parts_ms": parts}
    text = sentence(replace(results("ok"), steps=steps))
    assert ("No finding explains the 1.45 ms" in text) == (said is not None)
    assert text.endswith(said or "in 1 check.")


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("width", [NARROW, 200])
def test_recorded_reports_fit_into_narrow_and_wide_terminals(name: str, width: int) -> None:
    report = of_recorded(name)
    lines = render(report, Screen(width=width)).splitlines()
    pasted = tuple(finding.fix.how for finding in report.findings)
    assert all(len(line) <= width or line.endswith(pasted) for line in lines)


def test_quiet_is_one_line_that_names_the_causes() -> None:
    text = render(measured(), Screen(width=40, detail=Detail.quiet))
    assert text.count("\n") == 1
    assert "2 causes" in text and text.endswith("[etl, gc]\n")


def test_verbose_shows_the_evidence_of_each_finding() -> None:
    report = measured()
    text = render(report, Screen(detail=Detail.verbose))
    for finding in report.findings:
        for each in finding.evidence:
            assert f"· {each.name}" in text
    assert "·  " not in render(report) and "· ETL" not in render(report)


def test_of_very_many_findings_the_first_are_shown() -> None:
    text = render(many(1_000))
    assert "and 970 more: --verbose shows all" in text
    assert len(text) < 20_000
    assert "check-1000 " in render(many(1_000), Screen(detail=Detail.verbose, width=200))


def test_cells_stand_below_each_other_where_a_table_does_not_fit() -> None:
    text = render(measured(), Screen(width=40))
    assert "costs a step: 8.7 ms  50%" in text and " #  cause" not in text


def test_places_are_hyperlinks_where_the_terminal_shows_them() -> None:
    links = {"reference/data.py:80": "file:///repository/data.py"}
    text = render(measured(), Screen(links=links))
    assert "\x1b]8;" in text and "file:///repository/data.py" in text
    assert "\x1b[3" not in text  # a link is no colour
    assert "\x1b" not in render(measured())
