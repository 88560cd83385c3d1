"""What waits in the target's process, piece by piece."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.injection.bootstrap import STOP, AfterImport, in_one_line, stopped

NAME = "perfdoctor_test_module"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, with a module in it."""
    (tmp_path / f"{NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = finders
    sys.modules.pop(NAME, None)


def waiting() -> list[ModuleType]:
    """The modules after whose import we were called."""
    seen: list[ModuleType] = []
    sys.meta_path.insert(0, AfterImport(NAME, seen.append))
    return seen


def waits() -> bool:
    return any(isinstance(finder, AfterImport) for finder in sys.meta_path)


def test_it_is_called_with_the_module_once_it_is_whole(folder: Path) -> None:
    seen = waiting()
    module = importlib.import_module(NAME)
    assert seen == [module]
    assert module.value == 1
    assert not waits()


def test_it_is_called_only_once(folder: Path) -> None:
    seen = waiting()
    importlib.reload(importlib.import_module(NAME))
    assert len(seen) == 1


def test_other_modules_are_left_alone(folder: Path) -> None:
    (folder / "perfdoctor_test_other.py").write_text("")
    seen = waiting()
    importlib.import_module("perfdoctor_test_other")
    del sys.modules["perfdoctor_test_other"]
    assert seen == []
    assert waits()


def test_nothing_of_it_stays_at_the_module(folder: Path) -> None:
    waiting()
    module = importlib.import_module(NAME)
    assert module.__spec__ is not None and module.__spec__.loader is not None
    assert "exec_module" not in vars(module.__spec__.loader)


def test_asking_whether_there_is_a_module_is_no_import_of_it(folder: Path) -> None:
    seen = waiting()
    assert importlib.util.find_spec(NAME) is not None
    assert seen == []
    importlib.import_module(NAME)
    assert len(seen) == 1


def test_a_module_that_is_not_there_is_not_found_as_ever(folder: Path) -> None:
    (folder / f"{NAME}.py").unlink()
    importlib.invalidate_caches()
    waiting()
    assert importlib.util.find_spec(NAME) is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)


def test_an_import_that_fails_may_be_tried_again(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("import sys; assert 'perfdoctor_ready' in sys.modules")
    seen = waiting()
    with pytest.raises(AssertionError):
        importlib.import_module(NAME)
    assert seen == []
    sys.modules["perfdoctor_ready"] = sys
    try:
        importlib.import_module(NAME)
    finally:
        del sys.modules["perfdoctor_ready"]
    assert len(seen) == 1


def test_a_program_was_asked_to_stop_once_the_file_is_there(tmp_path: Path) -> None:
    assert not stopped(tmp_path)
    (tmp_path / STOP).touch()
    assert stopped(tmp_path)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (ValueError(), "ValueError"),
        (ValueError("\n\n  first\nsecond"), "ValueError:   first"),
        (KeyError("a"), "KeyError: 'a'"),
        (
            SyntaxError("invalid syntax", ("/home/me/train.py", 7, 1, "x ==", 7, 2)),
            "SyntaxError: invalid syntax (train.py, line 7)",
        ),
        (SyntaxError("no file"), "SyntaxError: no file"),
    ],
)
def test_an_exception_in_one_line(error: Exception, line: str) -> None:
    assert in_one_line(type(error), error) == line


@given(st.text())
def test_whatever_an_exception_says_it_is_one_line(text: str) -> None:
    line = in_one_line(ValueError, ValueError(text))
    assert len(line.splitlines()) == 1
    assert line.startswith("ValueError")
