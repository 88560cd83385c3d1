"""Text that is meant to do harm, and reports that are full of it."""

from typing import Any

from hypothesis import strategies as st
from msgspec import convert, to_builtins
from msgspec.structs import replace

from perfdoctor.schema.report import Location, Report
from tests.report.reports import measured

EXAMPLES = (
    "<script>alert(1)</script>",
    "</details></summary><img src=x onerror=alert(1)>",
    "a | b | c\n| d | e |\n|---|---|",
    "\x1b[31mred\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "\x00\x01\x08\x0b\x1f\x7f\x85\x9b",
    "gpj.\u202eexe.py",
    "\u2066hidden\u2069 \u200f\u061c",
    "\udcff\ud800",
    "]]><!-- --><![CDATA[",
    '" onmouseover="x" \' & &lt; &#0;',
    "::error file=x::injected\r\n::set-output name=a::b",
    "``` `` ` ~~~ $x$ **b** _i_ [l](http://evil.example) ![i](x) @everyone #1",
    "https://evil.example www.evil.example mailto:a@b.example",
    "# heading\n- list\n1. one\n> quote\n    code",
    "\ufffe\uffff\U0010ffff",
    "שלום train.py عربى",
    "[bold]markup[/bold] :warning:",
)
TEXTS = st.one_of(
    st.sampled_from(EXAMPLES),
    st.text(max_size=40),
    st.text(st.sampled_from("<>|`*_[]()#&\n\r\t\x1b\u202e\"'\\~$@:%,=+-.!1 a"), max_size=40),
    st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=10),
)


def filled(text: str, report: Report | None = None) -> Report:
    """A report in which each text that others choose is this one."""
    report = report or measured()
    assert report.steps is not None
    finding = report.findings[0]
    fact = replace(finding.evidence[0], name=text, value=text, unit=text, source=text)
    bad = replace(
        finding,
        summary=text,
        evidence=(fact, *finding.evidence),
        fix=replace(finding.fix, summary=text, how=text),
        location=Location(file=text or "x.py", line=3),
        documentation=text,
    )
    steps: dict[str, Any] = {
        **report.steps,
        "function": text,
        "calls": {text: 2.0, f"{text}2": 1.0},
        "failed": text,
        "not_replayed": text,
        "made_up": [text],
        "places": [{"part": "etl", "function": text, "place": text, "share": 0.5}],
    }
    return replace(
        report,
        target=replace(report.target, name=text, args=(text,)),
        environment={**report.environment, "backend": text, "packages": {"jax": text}},
        steps=steps,
        findings=(bad, *report.findings[1:]),
        checks=tuple(replace(each, summary=text) for each in report.checks),
    )


def copied(report: Report) -> Report:
    """Through plain data: what a reader of the JSON would have."""
    return convert(to_builtins(report), Report)
