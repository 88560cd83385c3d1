"""Files of ours: written so that no reader ever sees half of one, and read as data."""

import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from perfdoctor.schema.errors import UsageError

Saved = TypeVar("Saved")


class Header(msgspec.Struct):
    """What every file of ours begins with."""

    schema: str


def read_saved(file: Path, kind: type[Saved], schema: str, what: str) -> Saved:
    """What was saved there; a UsageError that says what is wrong with the file if that is not a
    `what` of this schema.
    """
    found = schema_of(file, what)
    if found != schema:
        raise UsageError(f"{file}: schema is {found!r}; expected {schema!r}")
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: no valid {what}: {error}") from None


def schema_of(file: Path, what: str) -> str:
    """Which of our kinds of files it says to be; a UsageError if it can't be read, or says none.

    `what` was expected there, in words.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Header).schema
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except msgspec.ValidationError:
        raise UsageError(f"{file}: no {what}: it has no schema") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON, or cut off: {error}") from None


def write_whole(file: Path, content: bytes) -> None:
    """Write beside and rename; a UsageError that names the file if that fails.

    What is no ordinary file (/dev/stdout, a pipe) is written to as it is.
    """
    beside = None
    file = Path(os.path.realpath(file))
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(content)
            return
        number, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
        beside = Path(name)
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
        beside.chmod(0o666 & ~current_umask())
        beside.rename(file)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def check_folder(file: Path) -> None:
    """A UsageError if a file can't be written there: said before the work, not after it."""
    if file.is_dir():
        raise UsageError(f"{file} is a directory; expected the name of a file to write")
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        state = "can't be written to" if file.parent.is_dir() else "does not exist"
        raise UsageError(f"{file} cannot be written: the folder {file.parent} {state}")


def current_umask() -> int:
    """The process's umask; the only way to read it is to set it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
