"""What holds of every page, without a browser."""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.report.benchmark import html as benchmark_html
from perfdoctor.report.formats import rendered
from perfdoctor.report.html import report as html
from perfdoctor.report.html.page import LARGEST_BYTES, NARROWER, WIDE, Limits, asset, fitting
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.report import Report
from tests.recorded import FOLDER
from tests.report.benchmark.benchmarks import compared
from tests.report.html.pages import SHOWN, complete, hostile, large, of_recording

RECORDED = sorted(file.stem for file in FOLDER.glob("*.json"))
VOID = {"meta", "link", "br", "img"}
POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


class Outline(HTMLParser):
    """The elements of a page, their attributes, and its scripts; fails where it is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data


def figures_of(text: str) -> list[Any]:
    found: list[Any] = json.loads(Outline(text).scripts[0])
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_each_recorded_observation_makes_a_page(name: str) -> None:
    report = of_recording(name)
    text = rendered(report, "html")
    page = Outline(text)
    assert len(text.encode()) < LARGEST_BYTES
    assert all(check.id in page.text for check in report.checks)
    assert all(finding.fix.how in page.text for finding in report.findings)
    assert len(figures_of(text)) == text.count('class="canvas"')


@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN)
def test_a_page_names_nothing_outside_of_itself(make: Callable[[], Report]) -> None:
    for tag, attributes in Outline(html.render(make())).elements:
        assert not attributes.keys() & {"src", "srcset", "action", "onload", "onclick", "style"}
        if "href" in attributes:
            assert (tag, attributes["href"]) == ("link", "data:,")


@pytest.mark.parametrize("text", [html.render(complete()), benchmark_html.render(compared())])
def test_only_our_own_scripts_may_run(text: str) -> None:
    (policy,) = map(unescape, POLICY.findall(text))
    scripts = Outline(text).scripts[1:]
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy


def test_hostile_text_is_text() -> None:
    text = html.render(hostile())
    page = Outline(text)
    assert not any(tag in ("img", "svg") for tag, _ in page.elements)
    assert len(page.scripts) == 3
    assert "<script>window.harmed = 1</script>" in page.text
    assert "\\u202e" in page.text and "\u202e" not in text
    assert "1337" not in page.text.replace("0.133", "")
    text.encode()


words = st.text(st.characters(codec=None), max_size=200)


@settings(max_examples=25, deadline=None)
@given(words, words)
def test_any_text_keeps_the_page_whole(summary: str, how: str) -> None:
    base = complete()
    finding = replace(base.findings[0], summary=summary, fix=replace(base.findings[0].fix, how=how))
    text = html.render(replace(base, findings=(finding,)))
    assert len(Outline(text).scripts) == 3
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", Outline(text).text)
    text.encode()


def test_huge_texts_are_cut_and_the_page_stays_small() -> None:
    base = hostile()
    huge = "<&" * 5_000_000
    finding = replace(base.findings[0], summary=huge, check=huge)
    text = html.render(replace(base, findings=(finding,) * 100, sources=()))
    assert len(text.encode()) <= LARGEST_BYTES
    assert "(10,000,000 characters)" in text


def test_a_thousand_findings_and_very_many_steps_stay_small() -> None:
    report = large(1000, 50_000)
    text = html.render(report)
    assert len(text.encode()) <= LARGEST_BYTES
    page = Outline(text)
    assert "Of 900 findings only a line is shown." in page.text
    assert all(finding.check in page.text for finding in report.findings)
    (timeline,) = (each for each in figures_of(text) if "spans" in each)
    assert any(part == "gc" and end - begin == 49.0 for _, part, begin, end in timeline["spans"])
    assert "shorter spans are not drawn" in page.text


def test_the_first_limits_that_fit_are_taken() -> None:
    def page(limits: Limits) -> str:
        return "x" * (LARGEST_BYTES + (limits is WIDE))

    assert len(fitting(page)) == LARGEST_BYTES
    assert len(fitting(lambda limits: str(limits.findings))) == len(str(WIDE.findings))
    assert fitting(lambda limits: f"{limits.findings:{LARGEST_BYTES + 1}}").strip() == str(
        NARROWER[-1].findings
    )


def test_without_jinja2_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"pip install 'perfdoctor\[html\]'"):
        html.render(complete())


def test_what_the_bundle_is_made_of_is_licensed() -> None:
    licences = asset("plot.LICENSES.txt")
    for name in ("@observablehq/plot", "d3-zoom", "d3-selection", "d3-scale", "isoformat"):
        assert re.search(rf"^{re.escape(name)} [\d.]+ \(", licences, re.MULTILINE)
