"""The code of a notebook's cells can be read as files, for as long as it is needed."""

import linecache
import tempfile
from pathlib import Path

import pytest

from perfdoctor.diagnosis import cells


def test_cells_are_files_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    cell, other = cells.folder() / "123.py", tmp_path / "other.py"
    source = ["for batch in loader:\n", "    step(batch)\n"]
    for file in (cell, other):
        monkeypatch.setitem(linecache.cache, str(file), (32, None, source, str(file)))
    with cells.written():
        assert cell.read_text() == "".join(source)
        assert not other.exists()
    assert not cells.folder().exists()


def test_what_is_there_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    cells.folder().mkdir()
    cell = cells.folder() / "123.py"
    cell.write_text("# the debugger's\n")
    monkeypatch.setitem(linecache.cache, str(cell), (3, None, ["x\n"], str(cell)))
    with cells.written():
        pass
    assert cell.read_text() == "# the debugger's\n"
