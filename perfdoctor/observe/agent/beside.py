"""What other threads and processes of the program do beside the thread that makes the steps."""

import os
import threading
from collections.abc import Mapping, Set
from typing import Any

import psutil

from perfdoctor.observe.agent.threads import Reading, family, read
from perfdoctor.schema.calls import Restless

RESTLESS = 0.9
"""The share of the time in which one that never rests runs or waits for a core; a choice."""
UNKNOWN = Reading({}, {}, {}, {})
"""Of a process that was not there."""


def readings() -> dict[int, Reading]:
    """What the kernel tells of the threads of this process and its children, by process."""
    return {pid: read(pid) for pid in family()}


def is_foreign(thread: threading.Thread) -> bool:
    """Whether a thread was not begun by Python but called it once: XLA's, that ran a callback."""
    return isinstance(thread, threading._DummyThread)


def work_beside(
    before: Mapping[int, Reading],
    after: Mapping[int, Reading],
    caller: int,
    callers: Set[int],
    passed_ms: float,
    steps: float,
) -> dict[str, Any]:
    """The fields of `StepCalls` that tell of it, from what the kernel told before and after so many
    steps.

    `caller`: the thread that makes them, as Python identifies it; `callers`: all that call jitted
    functions.
    """
    own = os.getpid()
    if own not in before or own not in after:
        return {}
    python = {each.native_id or 0: each for each in threading.enumerate()}
    calling = next((n for n, each in python.items() if each.ident == caller), 0)
    ours = threading.get_native_id()
    others = [n for n, each in python.items() if n not in (calling, ours) and not is_foreign(each)]
    changed = {pid: growth(before.get(pid, UNKNOWN), each) for pid, each in after.items()}
    in_threads, in_processes = changed.pop(own), changed
    restless = [
        Restless(name=python[n].name, is_process=False, cpu_ms=ran / 1e6 / steps)
        for n in others
        if python[n].ident not in callers
        for ran, wanted in [in_threads.get(n, (0, 0))]
        if wanted >= RESTLESS * passed_ms * 1e6
    ]
    restless += [
        Restless(name=name_of(pid), is_process=True, cpu_ms=ran / 1e6 / steps)
        for pid, threads in in_processes.items()
        for ran, wanted in threads.values()
        if wanted >= RESTLESS * passed_ms * 1e6
    ]
    ran_beside = [ran for threads in in_processes.values() for ran, _ in threads.values()]
    ran, wanted = in_threads.get(calling, (0, 0))
    return {
        "delayed_ms": (wanted - ran) / 1e6 / steps,
        "threads_cpu_ms": sum(in_threads.get(n, (0, 0))[0] for n in others) / 1e6 / steps,
        "children_cpu_ms": sum(ran_beside) / 1e6 / steps,
        "restless": tuple(restless),
    }


def growth(before: Reading, after: Reading) -> dict[int, tuple[int, int]]:
    """By thread of a process: nanoseconds on a core, and these with those in which it waited for
    one.
    """
    found = {}
    for n, ran_ns in after.ran_ns.items():
        ran = ran_ns - before.ran_ns.get(n, 0)
        found[n] = ran, ran + after.delayed_ns.get(n, 0) - before.delayed_ns.get(n, 0)
    return found


def name_of(pid: int) -> str:
    """What a process is called, and its number."""
    try:
        return f"{psutil.Process(pid).name()} {pid}"
    except psutil.Error:  # it has ended
        return str(pid)
