"""Python's shared memory that processes leave behind when they are killed.

Its resource tracker removes what they have told it of. A process that is killed just after it has
made some, which a loader's worker does for each batch, has not told it yet.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

FOLDER = Path("/dev/shm")
"""Where Linux has it."""
PREFIX = "psm_"
"""Of the names that multiprocessing.shared_memory gives."""


def opened_by(processes: Iterable[psutil.Process]) -> set[Path]:
    """The shared memory that the processes have open; those of others can't be looked at."""
    found = set()
    for process in processes:
        with suppress(OSError):  # it has ended, or is another user's
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):  # closed by now
                    found.add(descriptor.readlink())
    return {file for file in found if file.parent == FOLDER and file.name.startswith(PREFIX)}


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
