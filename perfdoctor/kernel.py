"""What a process of ours asks of the Linux kernel; elsewhere these do nothing."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""The number of the option of prctl(2)."""
NICENESS = 3
"""The niceness of what works beside the observed program: where both want a core, it gets a third
of it. With 10, a trace that is written and read in 4 s took 44 s where one other process kept a
core busy; and the program loses no less, for the work is the same: tests/benchmarks/script_overhead
told 0.9 and 1.9 % of a minute with 10 for plain_mlp and eqx_series, 1.1 and 2.0 % with 3 (± 0.6 at
most)."""


def die_with_parent() -> None:
    """Be killed when the process that started this one ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def offer_to_the_oom_killer() -> None:
    """Be the first to go when memory runs out, so that no innocent process does."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def let_others_go_first() -> None:
    """Take the time that other processes leave: `nice` alone holds only among processes of one
    session where the kernel shares time out by sessions first (autogroup). A session that is not
    ours alone is left as it is.
    """
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(NICENESS))


def let_other_threads_go_first() -> None:
    """Give way to other threads, as `let_others_go_first` does, but only with the calling thread,
    for as long as it lives.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def read_text(file: Path) -> str:
    """What the kernel says in a file of /proc or /sys; empty where there is none, or no longer."""
    try:
        return file.read_text()
    except OSError:
        return ""
