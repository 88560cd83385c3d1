"""Shared memory that killed processes leave behind."""

import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context, resource_tracker
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
LATE = """
import signal, sys, time
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
def make(number, frame):
    made.append(SharedMemory(create=True, size=100))
    made.append(get_context("spawn").Semaphore())  # its name stays until Python removes it
    names = f"{made[0].name} sem.{made[1]._semlock.name.removeprefix('/')}"
    Path(sys.argv[1]).write_text(names)
    time.sleep(600)
made = []
signal.signal(signal.SIGTERM, make)
print("ready", flush=True)
time.sleep(600)
"""
"""Makes some, and by it starts Python's resource tracker, when it is asked to end."""


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


def test_what_is_made_while_processes_are_being_ended_is_removed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with ProcessGroups() as groups:
        command = [sys.executable, "-c", LATE, str(note)]
        child = groups.spawn(command, stdout=subprocess.PIPE)
        child.stdout.readline()
    made = [shared_memory.FOLDER / name for name in note.read_text().split()]
    assert len(made) == 2
    assert not [file for file in made if file.exists()]


def test_a_semaphore_is_found_in_the_memory_of_its_process() -> None:
    semaphore = get_context("spawn").Semaphore()
    file = shared_memory.FOLDER / f"sem.{semaphore._semlock.name.removeprefix('/')}"  # type: ignore[attr-defined]
    assert file.exists()
    assert file in shared_memory.opened_by([psutil.Process()])


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
