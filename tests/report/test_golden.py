"""What is written of each recorded Observation, word by word (see tests/golden.py)."""

import pytest

from tests.report.reports import GOLDEN, golden_texts

TEXTS = golden_texts()


@pytest.mark.parametrize("file", sorted(TEXTS))
def test_text_is_golden(file: str) -> None:
    assert TEXTS[file] == (GOLDEN / file).read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    files = {each.relative_to(GOLDEN).as_posix() for each in GOLDEN.rglob("*") if each.is_file()}
    assert files == set(TEXTS)
