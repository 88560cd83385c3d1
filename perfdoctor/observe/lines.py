"""The lines of the user's program that an Observation names, read while they are as they ran."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.answers import place
from perfdoctor.schema.figures import SourceLines
from perfdoctor.schema.observation import Observation

NAMED = re.compile(r"([^\s:'\"]+\.py):(\d+)")
"""A place within a text."""
INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3")
"""Files of installed packages and of Python, which are not the user's own."""
AROUND = 2
"""Lines before and after the one that is named."""
MOST = 60
"""Places that are kept."""
WIDEST = 200
"""Characters of a line that are kept."""
LARGEST_BYTES = 4 * 2**20
"""The largest file that is read."""


def lines_of(observation: Observation, folders: Sequence[Path]) -> tuple[SourceLines, ...]:
    """The lines around each place that the Observation names and that lies below one of the
    folders.

    What is installed there is not the user's own.
    """
    roots = [folder.resolve() for folder in folders]
    named = dict.fromkeys(places_in(msgspec.to_builtins(observation)))
    found = (around(Path(file), line, roots) for file, line in named)
    return tuple(islice((each for each in found if each is not None), MOST))


def places_in(data: Any) -> Iterator[tuple[str, int]]:
    """All files with a line, in fields of their own or within a text."""
    if isinstance(data, dict):
        if isinstance(data.get("file"), str) and isinstance(data.get("line"), int):
            yield data["file"], data["line"]
        for each in data.values():
            yield from places_in(each)
    elif isinstance(data, list | tuple):
        for each in data:
            yield from places_in(each)
    elif isinstance(data, str):
        yield from ((file, int(line)) for file, line in NAMED.findall(data))


def around(file: Path, line: int, roots: Sequence[Path]) -> SourceLines | None:
    """The lines; None if it is no readable Python file of the user's."""
    try:
        real = file.resolve()
        is_own = any(real.is_relative_to(root) for root in roots)
        if not is_own or INSTALLED.search(str(real)) or real.suffix != ".py":
            return None
        if not real.is_file() or real.stat().st_size > LARGEST_BYTES:
            return None
        text = real.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return None
    if not 0 < line <= len(text):
        return None
    first = max(1, line - AROUND)
    return SourceLines(
        place=place(str(file), line),
        file=str(real),
        line=line,
        first_line=first,
        lines=tuple(each[:WIDEST] for each in text[first - 1 : line + AROUND]),
    )
