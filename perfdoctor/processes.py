"""Child processes and temporary folders of one command: whatever happens, none outlives it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Self

import psutil

from perfdoctor import shared_memory
from perfdoctor.process_tree import family, halted, resume, send

GRACE_S = 3.0
"""How long a child may take to leave by itself (grain's workers release shared memory then)."""
AGAIN_S = 5.0
"""After so long a signal interrupts again: whoever cleans up is done by then."""
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "MemoryError", "Out of memory", "out of memory")
"""What a program writes that has run out of memory: XLA's and Python's words for it."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived; only the command line catches it."""


class ProcessGroups:
    """Owns the children and folders of a command, as a context that ends them all.

    SIGINT and SIGTERM raise `Interrupted` in the main thread; never while a child is being started
    or ended, so none is lost between its start and its entry in the list. An exception that a
    signal raises may get lost in a library: compiled modules clear those that are raised while they
    are imported. So it is raised anew after the next child or folder, and by signals that arrive
    `AGAIN_S` later; a signal before that does not disturb what others clean up.
    """

    def __init__(self) -> None:
        self._began_s = time.time()
        self._children: list[psutil.Popen] = []
        self._folders: list[Path] = []
        self._busy = 0
        self._closing = False
        self._interrupted_s: float | None = None
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything; may be called again, and after an interruption of itself."""
        self._closing = True  # from here on signals are ignored
        self.end(*self._children)
        for folder in list(self._folders):
            self.discard(folder)
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._interrupted_s is not None and now_s < self._interrupted_s + AGAIN_S:
            return
        self._interrupted_s = now_s
        self._give_way()

    def _give_way(self) -> None:
        """Raise `Interrupted`, if a signal has come, and now is a moment for it."""
        if self._interrupted_s is not None and not self._busy and not self._closing:
            raise Interrupted

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
        self._give_way()

    def folder(self, prefix: str = "perfdoctor-", beside: Path | None = None) -> Path:
        """A new temporary folder, in the system's place for them or in `beside`."""
        with self._uninterrupted():
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=beside))
            self._folders.append(folder)
        return folder

    def discard(self, folder: Path) -> None:
        """Remove a folder of ours, if it is still there.

        A child that still writes in it may keep it from being removed: then `close` removes it,
        which ends all children first.
        """
        with self._uninterrupted():
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                self._folders.remove(folder)

    def spawn(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> psutil.Popen:
        """Start a child in a session of its own, so that a terminal's Ctrl-C reaches only us."""
        with self._uninterrupted():
            child = psutil.Popen(
                list(arguments),
                env=None if env is None else dict(env),
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            self._children.append(child)
        return child

    def __contains__(self, child: psutil.Popen) -> bool:
        return child in self._children

    def end(self, *children: psutil.Popen, grace_s: float = GRACE_S) -> None:
        """End children with all their descendants: asked first, killed after `grace_s`."""
        with self._uninterrupted():
            known = family(children)
            shared = shared_memory.opened_by(known)
            for child in children:
                resume(child)
                with suppress(psutil.Error):
                    child.terminate()
            psutil.wait_procs(children, timeout=grace_s)
            others, trackers = halted(children, known)
            shared |= shared_memory.opened_by(others)
            send(signal.SIGKILL, others)
            send(signal.SIGCONT, trackers)
            psutil.wait_procs(trackers, timeout=grace_s)
            send(signal.SIGKILL, trackers)
            for child in children:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                for stream in (child.stdin, child.stdout, child.stderr):
                    if stream is not None:
                        with suppress(OSError):
                            stream.close()
                self._children.remove(child)
            shared_memory.remove(shared, self._began_s)


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of one process so far; 0 if it is gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def peak_rss_bytes(process: psutil.Process) -> int:
    """The most memory that one process has held; what it holds now where the kernel keeps no
    record; 0 if it is gone.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def out_of_memory(log: Sequence[str]) -> str | None:
    """The last line of a log that speaks of exhausted memory, of the host or of a device."""
    return next((line for line in reversed(log) if any(s in line for s in OUT_OF_MEMORY)), None)


def python_module(name: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours in this interpreter."""
    return [sys.executable, "-m", name, *arguments]
