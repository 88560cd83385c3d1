"""What a process asks of the kernel for itself, in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.kernel import NICENESS, read_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")

ORPHAN = """
import os, sys, time
from perfdoctor.kernel import die_with_parent
if os.fork() == 0:
    die_with_parent()
    print(os.getpid(), flush=True)
    while True:
        time.sleep(1)
sys.stdin.readline()
"""


def test_a_process_dies_with_its_parent() -> None:
    command = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        orphan = int(parent.stdout.readline())
        os.kill(orphan, 0)
        parent.stdin.close()
        # the pipe is held open by both: its end comes when both are gone
        assert parent.stdout.read() == b""


def test_a_process_offers_itself_to_the_oom_killer() -> None:
    program = (
        "from perfdoctor.kernel import offer_to_the_oom_killer as f;"
        "f(); print(open('/proc/self/oom_score_adj').read())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(answer.stdout) == 1000


NICE = """
import os, threading
from pathlib import Path
from perfdoctor.kernel import let_other_threads_go_first, let_others_go_first
group = Path("/proc/self/autogroup")
os.setsid()
before = os.getpriority(os.PRIO_PROCESS, 0)
thread = threading.Thread(target=let_other_threads_go_first)
thread.start()
thread.join()
print(os.getpriority(os.PRIO_PROCESS, 0) - before)
let_others_go_first()
print(os.getpriority(os.PRIO_PROCESS, 0) - before)
print(group.read_text().split()[-1] if group.exists() and group.read_text() else NICENESS)
"""


def test_a_process_and_its_session_let_others_go_first_and_a_thread_only_itself() -> None:
    program = NICE.replace("NICENESS", str(NICENESS))
    command = [sys.executable, "-c", f"import os\nif os.fork() == 0:\n exec({program!r})"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["0", str(NICENESS), str(NICENESS)]


IN_THE_SESSION_OF_ANOTHER = """
from pathlib import Path
from perfdoctor.kernel import let_others_go_first
group = Path("/proc/self/autogroup")
before = group.read_text() if group.exists() else ""
let_others_go_first()
print(before == (group.read_text() if group.exists() else ""))
"""


def test_the_session_of_others_keeps_its_priority() -> None:
    command = [sys.executable, "-c", IN_THE_SESSION_OF_ANOTHER]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"


def test_read_text_of_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert read_text(tmp_path / "absent") == ""


def test_read_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("seen\n")
    assert read_text(tmp_path / "file") == "seen\n"
