"""The code of a notebook's cells, as files for as long as they are read.

ipykernel names each cell by a file in the system's temporary folder that it writes for its debugger
only; what the cell holds is known to Python's linecache.
"""

import linecache
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def folder() -> Path:
    """That of this process's cells."""
    return Path(tempfile.gettempdir()) / f"ipykernel_{os.getpid()}"


@contextmanager
def written() -> Iterator[None]:
    """Those that are missing are written, and removed afterwards."""
    home, made = folder(), list[Path]()
    for name, entry in list(linecache.cache.items()):
        file = Path(name)
        if len(entry) < 4 or file.parent != home or file.exists():
            continue
        with suppress(OSError):
            home.mkdir(mode=0o700, exist_ok=True)
            made.append(file)
            file.write_text("".join(entry[2]), encoding="utf-8")
    try:
        yield
    finally:
        for file in made:
            file.unlink(missing_ok=True)
        if made:
            with suppress(OSError):  # others lie there
                home.rmdir()
