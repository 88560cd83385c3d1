import re

import pytest
from hypothesis import assume, given, settings
from markdown_it import MarkdownIt

from perfdoctor.report.formats import rendered
from perfdoctor.report.gfm import LIMIT_BYTES, NOTHING
from perfdoctor.report.markdown import COLUMNS, render
from perfdoctor.schema.report import Report
from tests.report.hostile import EXAMPLES, TEXTS, filled
from tests.report.reports import RECORDED, healthy, many, measured, no_backend, of_recorded

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def columns(markdown: str) -> list[int]:
    """Of each table: its cells over its rows, which must be whole."""
    html = PARSER.render(markdown)
    counts = []
    for table in re.findall(r"<table>(.*?)</table>", html, re.DOTALL):
        cells = [len(re.findall("<t[hd]>", row)) for row in re.findall("<tr>.*?</tr>", table, re.S)]
        assert len(set(cells)) == 1
        counts.append(cells[0])
    return counts


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_report_has_its_tables_and_folds(name: str) -> None:
    report = of_recorded(name)
    text = render(report)
    opened, closed = text.count("<details>"), text.count("</details>")
    assert opened == closed == len(report.findings) + 1 + bool(report.steps)
    evidence = sum(bool(each.evidence) for each in report.findings)
    assert len(columns(text)) == bool(report.findings) + evidence + bool(report.steps) + 1
    assert len(text.encode()) <= LIMIT_BYTES


def test_the_first_table_has_a_row_for_each_finding() -> None:
    table = render(measured()).partition("<details>")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(measured().findings)
    assert columns(table) == [len(COLUMNS)]


def test_the_verdict_comes_first() -> None:
    assert "🔴 **This run trains at 43% " in render(measured())
    assert "🟢 **No cause of slowness found" in render(healthy())
    assert "🔴 **1 cause, the first keeps" in render(no_backend())


@pytest.mark.parametrize("text", EXAMPLES)
def test_hostile_text_breaks_no_table(text: str) -> None:
    counts = columns(rendered(filled(text), "markdown"))
    assert counts == columns(rendered(filled("x"), "markdown"))


@given(text=TEXTS)
@settings(max_examples=100, deadline=None)
def test_hostile_text_brings_no_html_and_no_link(text: str) -> None:
    assume(text.strip())  # an empty text is no paragraph
    html = PARSER.render(rendered(filled(text), "markdown"))
    known = PARSER.render(rendered(filled("x"), "markdown"))
    tags = re.findall(r"<(/?\w+)", html)
    assert [each for each in tags if each != "br"] == re.findall(r"<(/?\w+)", known)
    assert not re.search(r"<\w+[^>]*\s(on\w+|href|src)=", html)


@pytest.mark.parametrize("text", ["<" * 4_000, "`" * 4_000, "é|" * 2_000, "\x00" * 10_000])
def test_the_size_stays_below_the_limit_whatever_the_text(text: str) -> None:
    written = rendered(filled(text, many(100)), "markdown")
    assert len(written.encode()) <= LIMIT_BYTES


def test_what_is_left_out_is_counted() -> None:
    text = render(many(1_000))
    assert "and 950 more" in text
    left = re.search(r"Left out here, for its length: (\d+) more", text)
    assert left and int(left[1]) + text.count("<details>") == 1_000 + 3


def test_a_line_to_paste_can_be_copied_as_it_is() -> None:
    report: Report = measured()
    text = render(report)
    for finding in report.findings:
        assert f"```\n{finding.fix.how}\n```" in text


def test_mentions_are_broken() -> None:
    assert f"@{NOTHING}jit" in rendered(filled("@jit"), "markdown")
