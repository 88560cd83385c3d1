"""Reading what the kernel tells, without letting go of Python's lock."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from perfdoctor.observe.agent import held

READS = 300
"""So often is a file read; if the lock were let go of each time, another thread would get it."""
FAR_LONGER_S = 1000.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


@contextmanager
def no_asking_for_the_lock() -> Iterator[None]:
    """Threads get Python's lock only from one that lets go of it by itself."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(FAR_LONGER_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    content = "".join(f"line {number} ä\n" for number in range(5000))
    (tmp_path / "long").write_text(content)
    assert held.text(str(tmp_path / "long")) == content


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert held.text(str(tmp_path / "none")) == ""
    assert held.text(str(tmp_path)) == ""


def test_files_are_found_by_a_pattern(tmp_path: Path) -> None:
    for name in ("1", "2", "three"):
        (tmp_path / name).touch()
    assert held.files(f"{tmp_path}/*") == [f"{tmp_path}/{name}" for name in ("1", "2", "three")]
    assert held.files(f"{tmp_path}/none/*") == []


def test_no_file_stays_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(READS):
        held.text("/proc/self/stat")
        held.files("/proc/self/task/*")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_another_thread_does_not_run_while_files_are_read() -> None:
    may_run, runs = threading.Lock(), []
    may_run.acquire()

    def other() -> None:
        with may_run:
            runs.append(1)

    thread = threading.Thread(target=other)
    thread.start()
    with no_asking_for_the_lock():
        may_run.release()
        for _ in range(READS):
            held.text("/proc/self/status")
            held.files("/proc/self/task/*")
        assert not runs
    thread.join()
    assert runs


def test_the_family_is_this_process_and_all_below_it() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    try:
        process = psutil.Process(child.pid)
        while not (grandchildren := process.children()):
            assert child.poll() is None
        assert {os.getpid(), child.pid, grandchildren[0].pid} <= set(held.family())
    finally:
        child.communicate(b"\n")
    assert child.pid not in held.family()


def test_where_the_kernel_lists_no_children_they_are_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "files", lambda pattern: [])
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert {os.getpid(), child.pid} <= set(held.family())
    finally:
        child.communicate(b"\n")
