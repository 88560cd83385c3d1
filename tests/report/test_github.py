"""Annotations, read as GitHub's runner reads them."""

import re

import pytest
from hypothesis import given, settings

from perfdoctor.report.annotation import annotation
from perfdoctor.report.formats import rendered
from perfdoctor.report.github import MOST
from perfdoctor.report.inert import harmless
from tests.report.hostile import TEXTS, filled
from tests.report.reports import RECORDED, many, of_recorded


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Command, properties and message (actions/runner, ActionCommand.TryParseV2)."""
    found = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
    assert found
    pairs = (each.partition("=") for each in found[2].split(","))
    properties = {name: undone(value, property=True) for name, _, value in pairs}
    return found[1], properties, undone(found[3])


def undone(text: str, *, property: bool = False) -> str:
    """Without the escapes."""
    pairs = [("%0D", "\r"), ("%0A", "\n")]
    pairs += [("%3A", ":"), ("%2C", ",")] if property else []
    for escaped, raw in (*pairs, ("%25", "%")):
        text = text.replace(escaped, raw)
    return text


@given(message=TEXTS, title=TEXTS)
def test_a_runner_reads_what_was_written(message: str, title: str) -> None:
    line = annotation("warning", message, title=title, line=3)
    assert "\n" not in line and "\r" not in line
    assert read(line) == ("warning", {"title": title, "line": "3"}, message)


@pytest.mark.parametrize("name", RECORDED)
def test_each_finding_is_a_warning_and_the_last_line_sums_up(name: str) -> None:
    report = of_recorded(name)
    *warnings, summary = map(read, rendered(report, "github").splitlines())
    assert [each[1]["title"] for each in warnings] == [
        f"perfdoctor: {finding.check}" for finding in report.findings
    ]
    assert summary[0] == "notice" and summary[2].startswith(f"{name}.json: ")


def test_a_finding_stands_on_its_line() -> None:
    _, properties, message = read(rendered(of_recorded("slow_etl"), "github").splitlines()[0])
    assert properties["file"] == "perfdoctor/targets/reference/data.py"
    assert properties["line"] == "80"
    assert message.endswith('[data] source = "records"')


def test_no_more_are_written_than_are_shown() -> None:
    lines = rendered(many(1_000), "github").splitlines()
    assert sum(line.startswith("::warning") for line in lines) == MOST
    assert "and 991 more findings" in lines[MOST - 1]


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_hostile_text_starts_no_command_of_its_own(text: str) -> None:
    first, *_ = rendered(filled(text), "github").split("\n")
    command, properties, message = read(first)
    assert command == "warning" and set(properties) == {"file", "line", "title"}
    assert message.startswith(harmless(text))
