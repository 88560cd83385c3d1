"""Text of others within Markdown, read back by a parser of Markdown that isn't ours."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from perfdoctor.report.gfm import NOTHING, block, code, escaped, fitting, folded, table
from perfdoctor.report.inert import harmless
from tests.report.hostile import EXAMPLES, TEXTS

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SAFE = TEXTS.map(harmless)
"""As renderers get it."""


def tokens(markdown: str) -> list[Token]:
    """Of the whole text, those within lines among them."""
    found = PARSER.parse(markdown)
    return found + [child for each in found for child in each.children or ()]


def plain(text: str) -> str:
    """In one line."""
    return " ".join(text.split())


def read(markdown: str) -> str:
    """The text that a reader sees."""
    return "".join(each.content for each in tokens(markdown) if each.type == "text").replace(
        NOTHING, ""
    )


@given(SAFE)
@example("# heading")
@example("1. one")
@example("12) two")
@example("- list")
@example("=")
@example("+")
@example("2.5 ms")
def test_a_line_is_read_as_it_was(text: str) -> None:
    markdown = escaped(text)
    assert read(markdown) == plain(text)
    kinds = {each.type for each in tokens(markdown)}
    assert kinds <= {"paragraph_open", "paragraph_close", "inline", "text"}


@given(SAFE)
def test_nobody_is_mentioned_and_nothing_is_linked(text: str) -> None:
    markdown = escaped(text)
    assert not re.search(r"[@#]\w|://|www\.", markdown, re.IGNORECASE)


@given(st.lists(st.tuples(SAFE, SAFE), max_size=4))
def test_a_table_keeps_its_cells(rows: list[tuple[str, str]]) -> None:
    found = tokens(table(("a", "b"), rows))
    assert [each.type for each in found].count("td_open") == 2 * len(rows)
    cells = [each.content for before, each in pairwise(found) if before.type == "td_open"]
    assert [read(each) for each in cells] == [plain(text) for row in rows for text in row]


@given(SAFE)
def test_lines_to_copy_are_one_block(text: str) -> None:
    found = [each for each in tokens(block(text)) if each.type == "fence"]
    assert [each.content for each in found] == [f"{text}\n"]
    assert len(tokens(block(text))) == 1


@given(SAFE)
def test_code_in_a_line_is_read_as_it_was(text: str) -> None:
    found = tokens(f"### {code(text)}")
    assert [each.content.strip() for each in found if each.type == "code_inline"] == [plain(text)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_fold_stays_a_fold(text: str) -> None:
    markdown = folded(harmless(text), escaped(harmless(text)))
    html = "".join(each.content for each in tokens(markdown) if each.type.startswith("html"))
    assert re.findall(r"<(/?\w+)", html) == ["details", "summary", "/summary", "/details"]


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(0, 200))
def test_what_fits_is_kept_in_order(parts: list[str], room: int) -> None:
    kept, left = fitting(parts, room)
    assert kept == parts[: len(kept)] and len(kept) + left == len(parts)
    assert sum(len(each.encode()) + 1 for each in kept) <= room
    if left:
        assert sum(len(each.encode()) + 1 for each in parts[: len(kept) + 1]) > room
