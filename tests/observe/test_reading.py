"""What the agent recorded, read by a process of its own."""

import sys
import time
from pathlib import Path

import pytest

from perfdoctor.observe import reading
from perfdoctor.observe.ending import last_line
from perfdoctor.observe.reading import digested, read_recording
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.steps import UNREAD


def test_no_recording_where_none_was_left(tmp_path: Path) -> None:
    assert read_recording(tmp_path) is None


READS = """
import json, sys, time
from pathlib import Path
if len(sys.argv) < 3:
    time.sleep(600)  # a trace of millions of events
parts = dict.fromkeys(("steps", "garbage", "program", "executable"))
digest = {"compiles": [], **parts, "not_measured": {"steps": sys.argv[2]}}
Path(sys.argv[1], "digest.json").write_text(json.dumps(digest))
"""


@pytest.mark.parametrize("reads", [READS, "import time; time.sleep(600)"])
def test_a_trace_that_takes_too_long_to_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    def module(name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-c", reads, *arguments]

    monkeypatch.setattr(reading, "python_module", module)
    monkeypatch.setattr(reading, "READING_S", 0.2)
    monkeypatch.setattr(reading, "WITHOUT_TRACE_S", 10.0 if reads == READS else 0.2)
    with ProcessGroups() as groups:
        found = digested(tmp_path, groups, time.monotonic())
        assert groups._children == []
    assert (found.not_measured["steps"] if found else None) == (UNREAD if reads == READS else None)
    assert last_line(tmp_path) == "the budget ended before its trace was read; give it more"
