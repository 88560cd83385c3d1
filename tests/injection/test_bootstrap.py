"""What waits in the target's process, piece by piece."""

import importlib.util
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.injection import calls
from perfdoctor.injection.bootstrap import (
    AfterImport,
    in_one_line,
    leave_ours_out,
    stopped,
    without_ours,
)
from perfdoctor.protocol import STOP
from tests.command import ROOT

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


def ours() -> None:
    """A frame of our own files."""
    exec(compile("call()", calls.__file__, "exec"), {"call": theirs})


def theirs() -> None:
    raise ValueError("mine")


def caught(raises: Callable[[], None]) -> BaseException:
    try:
        raises()
    except ValueError as error:
        return error
    raise AssertionError


def functions(where: TracebackType | None) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(where)]


def test_a_traceback_lacks_our_frames() -> None:
    error = caught(ours)
    assert functions(error.__traceback__) == ["caught", "ours", "<module>", "theirs"]
    assert functions(without_ours(error.__traceback__)) == ["caught", "ours", "theirs"]
    assert without_ours(None) is None


def test_the_lines_of_the_others_stay() -> None:
    error = caught(ours)
    lines = [frame.lineno for frame in traceback.extract_tb(without_ours(error.__traceback__))]
    before = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
    assert lines == [*before[:2], before[3]]


def test_exceptions_behind_it_and_in_a_group_lack_them_too() -> None:
    cause, context, member = (caught(ours) for _ in range(3))
    group = BaseExceptionGroup("several", [member])
    group.__cause__, cause.__context__ = cause, context
    context.__context__ = group  # in a circle
    leave_ours_out(group)
    for each in (cause, context, member):
        assert functions(each.__traceback__) == ["caught", "ours", "theirs"]


ENDINGS = """
import sys, threading
from perfdoctor.injection import calls
from perfdoctor.injection.bootstrap import note_exceptions
from pathlib import Path
note_exceptions(Path(sys.argv[1]))
def fails():
    raise ValueError("mine")
def through_us():
    exec(compile("fails()", calls.__file__, "exec"), globals())
{}
"""


@pytest.mark.parametrize(
    "ending",
    [
        "through_us()",
        "thread = threading.Thread(target=through_us); thread.start(); thread.join()",
        "try:\n    through_us()\nexcept ValueError:\n    raise KeyError('theirs')",
        "try:\n    through_us()\nexcept ValueError as error:\n    raise KeyError(1) from error",
    ],
)
def test_what_python_shows_of_an_exception_lacks_our_frames(tmp_path: Path, ending: str) -> None:
    command = [sys.executable, "-c", ENDINGS.format(ending), str(tmp_path)]
    shown = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ).stderr
    assert "ValueError: mine" in shown and "in through_us" in shown
    assert calls.__file__ not in shown
