"""Files of this machine."""

import os
import shutil
from pathlib import Path
from typing import IO, Any


def GFile(name: Any, mode: str = "r") -> IO[Any]:
    """An open file."""
    return Path(name).open(mode)


def exists(path: Any) -> bool:
    """Whether it is there."""
    return Path(path).exists()


def isdir(path: Any) -> bool:
    """Whether it is a folder."""
    return Path(path).is_dir()


def makedirs(path: Any) -> None:
    """A folder, with those above it."""
    Path(path).mkdir(parents=True, exist_ok=True)


def listdir(path: Any) -> list[str]:
    """Names in a folder."""
    return [each.name for each in Path(path).iterdir()]


def glob(pattern: Any) -> list[str]:
    """Paths that fit."""
    folder = Path(pattern).parent
    return [str(each) for each in folder.glob(Path(pattern).name)]


def copy(source: Any, target: Any, overwrite: bool = False) -> None:
    """The file, once more."""
    shutil.copyfile(source, target)


def rename(source: Any, target: Any, overwrite: bool = False) -> None:
    """Under another name."""
    Path(source).replace(target)


def remove(path: Any) -> None:
    """The file is gone."""
    Path(path).unlink()


def rmtree(path: Any) -> None:
    """The folder is gone."""
    shutil.rmtree(path)


def stat(path: Any) -> os.stat_result:
    """Size and times."""
    return Path(path).stat()
