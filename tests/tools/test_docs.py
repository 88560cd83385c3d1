"""The generated pages are those that `python -m tools.docs` would write now."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.catalogue import checks
from tests.command import ROOT
from tools.docs.accuracy import PAGES, shown
from tools.docs.checks import check_page, index, plain
from tools.docs.pages import generated

RESULTS = sorted(ROOT.glob("tests/*/results/*.txt"))


def test_generated_pages_are_up_to_date() -> None:
    stale = [
        str(file.relative_to(ROOT))
        for file, text in generated().items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "python -m tools.docs"


def test_there_is_no_page_of_a_check_that_is_gone() -> None:
    assert set((ROOT / "docs" / "checks").glob("*.md")) <= generated().keys()


@pytest.mark.parametrize("result", RESULTS, ids=lambda file: file.stem)
def test_each_result_is_in_a_page_with_its_commit(result: Path) -> None:
    page = "".join((ROOT / "docs" / each).read_text(encoding="utf-8") for each in PAGES)
    assert f"(../{result.relative_to(ROOT)})" in page
    if result.stem != "gpu":  # reports of single runs, with a heading of their own
        text = result.read_text(encoding="utf-8")
        assert re.search(r"^commit    \w{7}", text, re.MULTILINE)
        assert text.partition("\n\n")[2].rstrip() in page


def test_a_result_is_told_with_all_that_is_needed_to_judge_it() -> None:
    text = (
        "date      2026-11-25 00:54 UTC\nmachine   A CPU, 2 cores, Linux 6.18\n"
        "versions  Python 3.11.7, jax 0.10.2, jaxlib 0.10.2\ncommit    abc1234\n"
        "command   python -m tests.x\n\na  b\n1  2\n"
    )
    made, table = shown(text, "tests/benchmarks/results/x.txt").split("\n\n")
    for part in ("2026-11-25", "abc1234", "A CPU, 2 cores", "jax 0.10.2", "python -m tests.x"):
        assert part in made
    assert table == "```text\na  b\n1  2\n```"


def test_a_page_has_all_that_the_docstring_says() -> None:
    for check in checks():
        page = check_page(check)
        assert page.count("\n## ") == 5
        assert "\n---" not in page
        words = re.findall(r"[a-z]{4,}", check.documentation)
        assert set(words) <= set(re.findall(r"[a-z]{4,}", page))
        assert f"[{check.id}]({check.id}.md)" in index([check])


@given(st.text(st.sampled_from("ab _*<>&`\n"), max_size=40))
def test_text_is_not_taken_for_markup(text: str) -> None:
    for part in re.split(r"`[^`]*`", plain(text)):
        assert re.fullmatch(r"(?:[^*_<&]|\\[*_<&])*", part, re.DOTALL)


def test_an_address_is_a_link() -> None:
    assert plain("See https://example.org/a_b.") == "See <https://example.org/a\\_b>."
