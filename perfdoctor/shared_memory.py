"""Python's shared memory that processes leave behind when they are killed.

Its resource tracker removes what they have told it of. A process that is killed just after it has
made some, which a loader's worker does for each batch, has not told it yet.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

FOLDER = Path("/dev/shm")
"""Where Linux has it."""
PREFIXES = ("psm_", "sem.mp-")
"""Of the names that multiprocessing gives to shared memory and to semaphores."""


def opened_by(processes: Iterable[psutil.Process]) -> set[Path]:
    """The shared memory and the semaphores that the processes have open; what processes of others
    have can't be looked at.
    """
    found = {file for process in processes for file in (*descriptors(process), *mapped(process))}
    return {file for file in found if file.parent == FOLDER and file.name.startswith(PREFIXES)}


def descriptors(process: psutil.Process) -> Iterator[Path]:
    """The files that a process has open by a number; none if it has ended, or is another user's."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # closed by now
                yield descriptor.readlink()


def mapped(process: psutil.Process) -> Iterator[Path]:
    """The files that a process has in its memory, as it has semaphores: these were made by another
    name, so it is the numbers of the files that tell.
    """
    inodes = set()
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/maps").read_text(errors="replace").splitlines():
            if f"{FOLDER}/" in line:
                inodes.add(int(line.split()[4]))
    for file in FOLDER.iterdir() if inodes else ():
        with suppress(OSError):
            if file.stat().st_ino in inodes:
                yield file


def remove(files: Iterable[Path], since_s: float) -> None:
    """Remove shared memory that is still there, if nobody has it open, and if it was made since
    `since_s`, in seconds since the epoch.
    """
    left = {file for file in files if is_younger(file, since_s)}
    for file in left - opened_by(psutil.process_iter()) if left else ():
        with suppress(OSError):
            file.unlink()


def is_younger(file: Path, since_s: float) -> bool:
    """Whether a file is there, and was made or resized since then."""
    try:
        return file.stat().st_ctime >= since_s
    except OSError:
        return False
