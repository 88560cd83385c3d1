"""Shared memory that killed processes leave behind."""

import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

from perfdoctor import shared_memory
from perfdoctor.processes import ProcessGroups

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="has another place for it")

MAKES = """
import sys
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
made = SharedMemory(create=True, size=100)
resource_tracker.unregister(made._name, "shared_memory")  # as if it was killed before it told that
opened = SharedMemory(sys.argv[1])
resource_tracker.unregister(opened._name, "shared_memory")
print(made.name, flush=True)
input()
"""


@pytest.fixture
def older() -> Iterator[Path]:
    """What was there before."""
    memory = SharedMemory(create=True, size=100)
    resource_tracker.unregister(f"/{memory.name}", "shared_memory")
    memory.close()
    file = shared_memory.FOLDER / memory.name
    yield file
    file.unlink(missing_ok=True)


def test_what_a_killed_process_has_just_made_is_removed_and_nothing_else(older: Path) -> None:
    while older.stat().st_ctime >= time.time():
        pass
    with ProcessGroups() as groups:
        child = groups.spawn(
            [sys.executable, "-c", MAKES, older.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        made = shared_memory.FOLDER / child.stdout.readline().decode().strip()
        assert {made, older} <= shared_memory.opened_by([child])
    assert not made.exists()
    assert older.exists()


def test_what_somebody_has_open_stays(older: Path) -> None:
    with older.open():
        shared_memory.remove([older], 0.0)
        assert older.exists()
    shared_memory.remove([older, older.with_name("psm_none")], 0.0)
    assert not older.exists()


def test_a_process_that_has_ended_has_nothing_open() -> None:
    ended = psutil.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert shared_memory.opened_by([ended]) == set()
