from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest.functions import computes, holds_examples

SOURCE = """\
from torch.utils.data import Dataset

class Policy:
    def log_prob(self, action):
        scaled = (action - self.mean) / self.scale
        return -0.5 * (scaled**2).sum()  # log_prob

    def log_metrics(self, metrics):
        self.history.append(metrics)  # log_metrics

    def log_line(self, metrics):
        print(metrics)  # log_line
        return metrics

    def log_nothing(self):
        return None  # log_nothing

class Config:
    def __getitem__(self, key):
        return self.values[key]  # config

    def keys(self):
        return self.values.keys()

class Blocks(eqx.Module):
    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return self.blocks[index]  # blocks

class Rows:
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return decode(index)  # rows

class Digits(Dataset):
    def __getitem__(self, index):
        return decode(index)  # digits

class More(Rows):
    def __getitem__(self, index):
        return decode(index)  # more

at_the_top = 1  # top
"""


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SOURCE.splitlines(), 1) if f"# {text}" in line)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A script with functions and classes of all kinds."""
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log_prob", True),
        ("log_metrics", False),
        ("log_line", False),
        ("log_nothing", False),
        ("top", None),
    ],
)
def test_a_function_computes_that_returns_a_value_and_writes_nothing(
    name: str, expected: bool | None, file: str
) -> None:
    assert computes(file, line_of(name)) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("config", False),
        ("blocks", False),
        ("rows", True),
        ("digits", True),
        ("more", True),
        ("top", None),
    ],
)
def test_a_class_of_examples_has_a_length_or_the_name_of_one(
    name: str, expected: bool | None, file: str
) -> None:
    assert holds_examples(file, line_of(name)) is expected


def test_what_can_not_be_read_tells_nothing() -> None:
    assert computes("/not/there.py", 1) is None
    assert holds_examples("/not/there.py", 1) is None


def test_classes_that_are_derived_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text("class A(B):\n    x = 1\nclass B(A):\n    y = 1\n")
    assert holds_examples(str(file), 2) is False


@given(st.text(max_size=60), st.integers(-2, 9))
def test_any_text_is_answered(text: str, line: int) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "odd.py"
        file.write_text(text, encoding="utf-8", errors="replace")
        assert computes(str(file), line) in (True, False, None)
        assert holds_examples(str(file), line) in (True, False, None)
