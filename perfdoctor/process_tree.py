"""A process with all its descendants: found, stopped, and let go on together."""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil


def tree(child: psutil.Process) -> list[psutil.Process]:
    """A process and all its descendants that live."""
    try:
        return [child, *child.children(recursive=True)]
    except psutil.Error:
        return [child]


def family(children: Iterable[psutil.Popen]) -> set[psutil.Process]:
    """Children, their descendants, and whoever is in a session that they began: that includes
    those whose parent has left.
    """
    found = {process for child in children for process in tree(child)}
    sessions = {child.pid for child in children}
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getsid(process.pid) in sessions:
                found.add(process)
    return found


def halted(
    children: Sequence[psutil.Popen], known: set[psutil.Process]
) -> tuple[set[psutil.Process], set[psutil.Process]]:
    """Stop the known processes and all of the children's family (SIGSTOP), those too which they
    start meanwhile: who is stopped, and the resource trackers, which are not.
    """
    others: set[psutil.Process] = set()
    trackers: set[psutil.Process] = set()
    while new := (known | family(children)) - others - trackers:
        trackers |= {process for process in new if is_resource_tracker(process)}
        send(signal.SIGSTOP, new - trackers)
        others |= new - trackers
    return others, trackers


def send(number: signal.Signals, processes: Iterable[psutil.Process]) -> None:
    """A signal to those that still live."""
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def is_resource_tracker(process: psutil.Process) -> bool:
    """Python's own helper that removes shared memory and semaphores which others left behind.

    It ends by itself as soon as the processes are gone that it works for.
    """
    with suppress(psutil.Error):
        return "multiprocessing.resource_tracker" in " ".join(process.cmdline())
    return False


def suspend(child: psutil.Process) -> int:
    """Stop a process at once (SIGSTOP), and then all its descendants: at which instant, by
    time.monotonic_ns().
    """
    with suppress(psutil.Error):
        child.suspend()
    instant_ns = time.monotonic_ns()
    send(signal.SIGSTOP, tree(child)[1:])
    return instant_ns


def resume(child: psutil.Process) -> int:
    """Let a suspended process go on (SIGCONT), after all its descendants: at which instant, by
    time.monotonic_ns().
    """
    resume_descendants(child)
    return resume_alone(child)


def resume_descendants(child: psutil.Process) -> None:
    """Finding them takes milliseconds, in which the process itself still rests."""
    for process in reversed(tree(child)[1:]):
        with suppress(psutil.Error):
            process.resume()


def resume_alone(child: psutil.Process) -> int:
    """Let a suspended process run again, without its descendants; returns when, by
    time.monotonic_ns().
    """
    instant_ns = time.monotonic_ns()
    with suppress(psutil.Error):
        child.resume()
    return instant_ns
