"""What the agent recorded, read by a process of its own."""

import sys
import time
from pathlib import Path

import pytest

from perfdoctor.observe import reading
from perfdoctor.observe.ending import last_line
from perfdoctor.observe.reading import digested, read_recording
from perfdoctor.processes import ProcessGroups


def test_no_recording_where_none_was_left(tmp_path: Path) -> None:
    assert read_recording(tmp_path) is None


def test_a_trace_that_takes_too_long_to_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for_ever = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(reading, "python_module", lambda *arguments: for_ever)
    monkeypatch.setattr(reading, "READING_S", 0.2)
    with ProcessGroups() as groups:
        assert digested(tmp_path, groups, time.monotonic()) is None
        assert groups._children == []
    assert last_line(tmp_path) == "the budget ended before its trace was read; give it more"
