"""Where the reference loop's data set lies, and writing it there once."""

import errno
from collections.abc import Callable
from pathlib import Path

import msgspec
import platformdirs

from perfdoctor.processes import ProcessGroups, python_module
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.workload import Workload

FORMAT = 1
"""Raised whenever `generate` writes something else."""


def location(workload: Workload) -> Path:
    """The folder of the data set that this workload reads; its name tells what is in it."""
    data = workload.data
    root = Path(data.folder) if data.folder else platformdirs.user_cache_path("perfdoctor")
    if workload.model.name in ("lstm", "transformer"):
        return root / f"tokens-v{FORMAT}-{data.examples}x{data.sequence_length}"
    return root / f"images-v{FORMAT}-{data.examples}x{data.image_size}"


def ensure(workload: Workload, groups: ProcessGroups, say: Callable[[str], None]) -> Path:
    """The data set's folder, written first if it is not there.

    It is written beside and renamed, so that there is never half of one.
    """
    final = location(workload)
    if final.is_dir():
        return final
    say(f"writing the data set to {final}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = groups.folder(prefix=f".{final.name}-", beside=final.parent)
    except OSError as error:
        raise UsageError(cannot_write(final, error.strerror)) from None
    spec = folder / "workload.json"
    log = groups.folder() / "log"
    try:
        spec.write_bytes(msgspec.json.encode(workload))
        (folder / "data").mkdir()
        with log.open("wb") as stderr:
            child = groups.spawn(
                python_module(
                    "perfdoctor.targets.reference.generate", str(spec), str(folder / "data")
                ),
                stderr=stderr,
            )
            code = child.wait()
            groups.end(child)
        if code != 0:
            lines = log.read_text(errors="replace").strip().splitlines() or [f"status {code}"]
            raise UsageError(cannot_write(final, lines[-1]))
        move(folder / "data", final)
    except OSError as error:
        raise UsageError(cannot_write(final, error.strerror)) from None
    finally:
        groups.discard(folder)
        groups.discard(log.parent)
    return final


def move(source: Path, final: Path) -> None:
    """Put the finished folder in its place; another perfdoctor may have done so meanwhile."""
    try:
        source.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def cannot_write(folder: Path, why: str | None) -> str:
    """The sentence for the user."""
    return (
        f"the data set cannot be written to {folder}: {why}; "
        "name another folder in the workload file, [data] folder = …"
    )
