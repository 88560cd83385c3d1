"""Counts the threads of the observed process, and those that ran between two readings."""

import os
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from threadpoolctl import threadpool_info

from perfdoctor.observe.agent import held
from perfdoctor.schema.run import Pool, Threads

RAN_NS = 10_000_000
"""A thread that had a core for less was idle."""
MINOR_FAULTS = 7
"""The place of a thread's page faults in /proc/…/stat, behind its name; see proc(5)."""


@dataclass(frozen=True)
class Reading:
    """By thread id: its name, nanoseconds on a core, nanoseconds in which it waited for one, times
    that it was made to leave it, and pages that the kernel had to give it first.
    """

    names: dict[int, str]
    ran_ns: dict[int, int]
    delayed_ns: dict[int, int]
    forced: dict[int, int]
    faults: dict[int, int] = field(default_factory=dict)


def read(pid: int) -> Reading:
    """The threads of a process now; none where there is no /proc."""
    names, ran_ns, delayed_ns, forced, faults = {}, {}, {}, {}, {}
    for task in held.files(f"/proc/{pid}/task/*"):
        with suppress(ValueError, IndexError):  # it has ended
            number = int(Path(task).name)
            names[number] = held.text(f"{task}/comm").strip()
            ran, delayed, _ = held.text(f"{task}/schedstat").split()
            ran_ns[number], delayed_ns[number] = int(ran), int(delayed)
            switches = re.search(
                r"nonvoluntary_ctxt_switches:\s+(\d+)", held.text(f"{task}/status")
            )
            forced[number] = int(switches[1]) if switches else 0
            _, _, behind_name = held.text(f"{task}/stat").rpartition(")")
            faults[number] = int(behind_name.split()[MINOR_FAULTS])
    return Reading(names, ran_ns, delayed_ns, forced, faults)


def readings() -> dict[int, Reading]:
    """What the kernel tells of the threads of this process and its descendants, by process."""
    return {pid: read(pid) for pid in held.family()}


class ThreadWatch:
    """Reads the threads of this process and its children when a window opens and closes."""

    def __init__(self) -> None:
        self._before: dict[int, Reading] = {}

    def begin(self) -> None:
        """The window opens."""
        self._before = readings()

    def end(self, seconds: float) -> Threads:
        """The window closes after so many seconds."""
        after = readings()
        own = os.getpid()
        ran = {pid: count_ran(self._before.get(pid), reading) for pid, reading in after.items()}
        return Threads(
            by_name=dict(Counter(pool_name(name) for name in after[own].names.values())),
            pools=tuple(
                Pool(
                    library=f"{pool.get('user_api', '?')}: {Path(pool['filepath']).name}",
                    threads=pool["num_threads"],
                )
                for pool in threadpool_info()
            ),
            children=len(after) - 1,
            child_threads=sum(count for pid, count in ran.items() if pid != own),
            ran=ran[own],
            forced_switches=forced_switches(self._before.get(own), after[own]) / seconds,
        )


def count_ran(before: Reading | None, after: Reading) -> int:
    """Threads that had a core in between."""
    start = before.ran_ns if before else {}
    return sum(ran - start.get(thread, 0) >= RAN_NS for thread, ran in after.ran_ns.items())


def forced_switches(before: Reading | None, after: Reading) -> int:
    """How often threads had to leave their core in between."""
    start = before.forced if before else {}
    return sum(count - start.get(thread, 0) for thread, count in after.forced.items())


def pool_name(name: str) -> str:
    """A thread's name without the number that some pools add: tf_XLAEigen/12 is tf_XLAEigen."""
    return re.sub(r"[/_-]?-?\d+\Z", "", name) or name


def is_blocked(before: Reading, after: Reading, seconds: float) -> bool:
    """Whether the main thread has waited while other threads of this process computed."""
    main = threading.main_thread().native_id
    ran = {n: each - before.ran_ns.get(n, 0) for n, each in after.ran_ns.items()}
    of_main = ran.pop(main or 0, 0)
    return sum(ran.values()) - of_main > seconds * 1e9 / 2
