"""Errors that end a command with one sentence."""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Wrong usage or unreadable input; the message names the file, the key and what is expected."""


class NothingMeasured(Exception):
    """A part of an Observation that a check needs is missing; the message says why."""


def meant(name: str, names: Iterable[str]) -> str:
    """For the end of a message: the one of the names that is nearest to a wrong one, or all."""
    known = list(names)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
