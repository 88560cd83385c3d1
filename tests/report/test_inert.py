import unicodedata

import pytest
from hypothesis import given

from perfdoctor.report.inert import KEPT, LONGEST, UNSEEN, harmless, inert, well_formed
from tests.report.hostile import EXAMPLES, TEXTS, filled
from tests.report.reports import RECORDED, of_recorded


@given(TEXTS)
def test_nothing_unseen_is_left(text: str) -> None:
    assert all(c in KEPT or unicodedata.category(c) not in UNSEEN for c in harmless(text))
    harmless(text).encode()


@given(TEXTS)
def test_what_is_harmless_stays(text: str) -> None:
    assert harmless(harmless(text)) == harmless(text)
    plain = "".join(c for c in text if c in KEPT or unicodedata.category(c) not in UNSEEN)
    assert harmless(plain) == plain


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("\udcff", r"\udcff"),
        ("a\nb\tc", "a\nb\tc"),
        ("é שלום 日本 👍 – × …", "é שלום 日本 👍 – × …"),
    ],
)
def test_what_can_not_be_seen_is_written_out(text: str, seen: str) -> None:
    assert harmless(text) == seen


def test_very_long_text_is_cut_and_says_so() -> None:
    text = harmless("x" * 10_000_000)
    assert len(text) < LONGEST + 50
    assert text.endswith("… (10,000,000 characters)")


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_of_a_recorded_report_changes(name: str) -> None:
    assert inert(of_recorded(name)) == of_recorded(name)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_text_of_a_report_is_made_harmless(text: str) -> None:
    safe = inert(filled(text))
    assert safe.target.name == safe.findings[0].evidence[0].source == harmless(text)
    assert safe.steps is not None and harmless(text) in safe.steps["calls"]


def test_lone_surrogates_are_written_out() -> None:
    assert well_formed({"\udcff": ["a\ud800"]}) == {r"\udcff": [r"a\ud800"]}
