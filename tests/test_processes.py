import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from perfdoctor.process_tree import suspend
from perfdoctor.processes import (
    Interrupted,
    ProcessGroups,
    cpu_seconds,
    out_of_memory,
    peak_rss_bytes,
    python_module,
)
from tests.awaited import await_status

LIMIT_S = 30.0
"""Generous: reached only where something is wrong."""

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP
POLITE = """
import signal, sys, time
def leave(number, frame):
    open(sys.argv[1], 'w').write('left')
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print('ready', flush=True)
time.sleep(600)
"""
WRITER = """
import os, sys
print("ready", flush=True)
for number in range(10**9):
    os.makedirs(f"{sys.argv[1]}/{number}/inner")
"""
PARENT = """
import subprocess, sys, time
own_session = sys.argv[1] == "apart"
command = [sys.executable, "-c", "import time; time.sleep(600)"]
print(subprocess.Popen(command, start_new_session=own_session).pid, flush=True)
if sys.argv[1] == "leaving":
    sys.exit(0)
time.sleep(600)
"""
COMMAND = """
import os, signal, subprocess, sys
from perfdoctor import processes
from perfdoctor.processes import Interrupted, ProcessGroups

def wait():
    while True:
        signal.pause()

def told(groups):
    try:
        folder = groups.folder()
        child = groups.spawn([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, folder, flush=True)
        wait()
    except Interrupted:
        print("interrupted", flush=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)  # a user who presses Ctrl-C again
        raise

class Lossy:
    def __del__(self):  # Python drops what is raised here, as compiled modules do in an import
        os.kill(os.getpid(), signal.SIGTERM)

def lost(groups):
    sys.unraisablehook = lambda lost: print("lost", lost.exc_type.__name__, flush=True)
    Lossy()
    print("goes on", flush=True)
    groups.folder()
    print("not reached", flush=True)

def late(groups):
    sys.unraisablehook = lambda lost: None
    Lossy()
    processes.AGAIN_S = 0.0
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except Interrupted:
        print("interrupted again", flush=True)
        raise
    print("not reached", flush=True)

class Loud(list):
    def __iter__(self):  # a signal that arrives while the child is being started
        os.kill(os.getpid(), signal.SIGTERM)
        print("signalled", flush=True)
        return super().__iter__()

def starting(groups):
    groups.spawn(Loud([sys.executable, "-c", "import time; time.sleep(600)"]))
    print("not reached", flush=True)

try:
    with ProcessGroups() as groups:
        globals()[sys.argv[1]](groups)
except Interrupted:
    import psutil
    restored = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    print("closed", restored, psutil.Process().children(), flush=True)
"""


def started(groups: ProcessGroups, program: str, *arguments: str) -> tuple[psutil.Popen, str]:
    """A child that runs this program, and the first line that it wrote."""
    command = [sys.executable, "-c", program, *arguments]
    child = groups.spawn(command, stdout=subprocess.PIPE)
    return child, child.stdout.readline().decode().strip()


def gone(pid: int) -> bool:
    """Whether a process ends, at most as a zombie that nobody collects."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_children_end_with_the_ward() -> None:
    with ProcessGroups() as groups:
        children = [started(groups, SLEEP)[0] for _ in range(2)]
        assert all(child.is_running() for child in children)
    assert [child.returncode for child in children] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("how", ["together", "apart"])
def test_grandchildren_end_with_the_ward(how: str) -> None:
    with ProcessGroups() as groups:
        _, pid = started(groups, PARENT, how)
        assert psutil.pid_exists(int(pid))
    assert gone(int(pid))


def test_grandchildren_end_even_where_their_parent_has_left() -> None:
    with ProcessGroups() as groups:
        child, pid = started(groups, PARENT, "leaving")
        child.wait(LIMIT_S)
        assert psutil.pid_exists(int(pid))
    assert gone(int(pid))


def test_suspended_children_and_grandchildren_end_too() -> None:
    with ProcessGroups() as groups:
        child, pid = started(groups, PARENT, "together")
        suspend(child)
        await_status(psutil.Process(int(pid)), psutil.STATUS_STOPPED)
    assert child.returncode == -signal.SIGTERM
    assert gone(int(pid))


def test_a_child_may_leave_by_itself(tmp_path: Path) -> None:
    with ProcessGroups() as groups:
        child, _ = started(groups, POLITE, str(tmp_path / "note"))
    assert child.returncode == 0
    assert (tmp_path / "note").read_text() == "left"


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    with ProcessGroups() as groups:
        child, _ = started(groups, DEAF)
        groups.end(child, grace_s=0.1)
        assert child.returncode == -signal.SIGKILL


def test_a_child_that_has_ended_already_is_no_trouble() -> None:
    with ProcessGroups() as groups:
        child, _ = started(groups, "print('done')")
        assert child.wait(LIMIT_S) == 0
    assert child.returncode == 0


def test_ending_one_child_leaves_the_others() -> None:
    with ProcessGroups() as groups:
        one, _ = started(groups, SLEEP)
        other, _ = started(groups, SLEEP)
        groups.end(one)
        assert not one.is_running() and other.is_running()


def test_children_end_where_the_command_fails() -> None:
    with pytest.raises(ZeroDivisionError), ProcessGroups() as groups:
        child, _ = started(groups, SLEEP)
        raise ZeroDivisionError
    assert child.returncode == -signal.SIGTERM


def test_folders_are_removed_with_all_that_is_in_them(tmp_path: Path) -> None:
    with ProcessGroups() as groups:
        folders = [groups.folder(), groups.folder(prefix="set-", beside=tmp_path)]
        for folder in folders:
            (folder / "inner").mkdir()
            (folder / "inner" / "file").write_text("x")
        assert folders[1].parent == tmp_path and folders[1].name.startswith("set-")
    assert not any(folder.exists() for folder in folders)


def test_a_folder_is_removed_in_the_end_where_a_child_still_wrote_in_it() -> None:
    """As in an interrupted command, which leaves what it was doing before it ends its children."""
    with ProcessGroups() as groups:
        folder = groups.folder()
        writer = groups.spawn([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"ready\n"
        groups.discard(folder)
    assert not folder.exists()


def test_a_folder_may_be_discarded_before() -> None:
    with ProcessGroups() as groups:
        folder = groups.folder()
        groups.discard(folder)
        assert not folder.exists()


def test_closing_twice_is_closing_once() -> None:
    with ProcessGroups() as groups:
        started(groups, SLEEP)
        groups.close()
    groups.close()


def test_a_child_gets_the_environment_and_folder_that_it_is_given(tmp_path: Path) -> None:
    with ProcessGroups() as groups:
        command = [sys.executable, "-c", "import os; print(os.environ['FRUIT'], os.getcwd())"]
        env = {**os.environ, "FRUIT": "pear"}
        child = groups.spawn(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE)
        assert child.stdout.read().decode() == f"pear {tmp_path.resolve()}\n"


def test_a_child_is_out_of_reach_of_the_terminals_ctrl_c() -> None:
    with ProcessGroups() as groups:
        child, _ = started(groups, SLEEP)
        assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with ProcessGroups():
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_ward_in_another_thread_owns_its_children_and_no_signals() -> None:
    handlers: list[object] = []
    codes: list[int] = []

    def work() -> None:
        with ProcessGroups() as groups:
            child, _ = started(groups, SLEEP)
            handlers.append(signal.getsignal(signal.SIGTERM))
        codes.append(child.returncode)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LIMIT_S)
    assert handlers == [signal.getsignal(signal.SIGTERM)]
    assert codes == [-signal.SIGTERM]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_once_and_leaves_nothing(number: signal.Signals) -> None:
    command = [sys.executable, "-c", COMMAND, "told"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid, folder = program.stdout.readline().split()
        assert Path(folder).is_dir()
        program.send_signal(number)
        said, _ = program.communicate(timeout=LIMIT_S)
    assert said.splitlines() == ["interrupted", "closed True []"]
    assert program.returncode == 0
    assert gone(int(pid)) and not Path(folder).exists()


@pytest.mark.parametrize(
    "how, says",
    [
        ("starting", ["signalled"]),  # while a child is being started: it is not lost
        ("lost", ["lost Interrupted", "goes on"]),
        ("late", ["interrupted again"]),
    ],
)
def test_no_signal_gets_lost(how: str, says: list[str]) -> None:
    command = [sys.executable, "-c", COMMAND, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        said, _ = program.communicate(timeout=LIMIT_S)
    assert said.splitlines() == [*says, "closed True []"]
    assert program.returncode == 0


def test_an_interruption_is_no_exception_that_a_check_might_catch() -> None:
    assert not issubclass(Interrupted, Exception)


@pytest.mark.parametrize(
    "line",
    [
        "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes",
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB",
    ],
)
def test_exhausted_memory_is_recognised(line: str) -> None:
    assert out_of_memory(["begin", line, "the end"]) == line


def test_other_faults_are_not_taken_for_exhausted_memory() -> None:
    assert out_of_memory(["ValueError: shapes do not match"]) is None
    assert out_of_memory([]) is None


def test_a_module_runs_in_this_interpreter() -> None:
    assert python_module("json.tool", "-h") == [sys.executable, "-m", "json.tool", "-h"]


def test_cpu_seconds_of_this_process_grow_as_it_computes() -> None:
    before = cpu_seconds(psutil.Process())
    while cpu_seconds(psutil.Process()) == before:
        sum(range(100_000))
    assert cpu_seconds(psutil.Process()) > before


def test_the_peak_of_memory_stays_when_the_memory_is_gone() -> None:
    process = psutil.Process()
    before = peak_rss_bytes(process)
    block = bytearray(b"x" * (before + 64 * 2**20))
    assert peak_rss_bytes(process) >= before + 32 * 2**20
    held = peak_rss_bytes(process)
    del block
    assert peak_rss_bytes(process) >= held


def test_a_process_that_is_gone_took_nothing() -> None:
    child = psutil.Popen(["true"])
    child.wait()
    assert (cpu_seconds(child), peak_rss_bytes(child)) == (0.0, 0)
