"""Takes from a report what could harm its reader: names, messages and code are others' text."""

import re
import unicodedata
from typing import Any, TypeVar

import msgspec

Told = TypeVar("Told", bound=msgspec.Struct)

LONGEST = 4_000
"""Characters of one text that are shown."""
KEPT = "\n\t"
"""Control characters that stay: they are only white space."""
HIDDEN = re.compile(r"[^\x20-\x7e\xa0-\u00ac\u00ae-\u02ff]")
"""Finds what may have to be escaped: all that is not a plain letter or sign."""
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode's categories of what moves the cursor, changes the direction of reading, or has no shape:
controls, format characters (so the bidirectional ones), surrogates, unassigned, separators."""


def inert(told: Told) -> Told:
    """The same report, with no text that is too long, or has characters that no reader can see."""
    raw = cleaned(msgspec.to_builtins(told))
    return msgspec.convert(raw, type(told))


def cleaned(value: Any) -> Any:
    """All texts within plain data, keys too."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {cleaned(key): cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return value


def harmless(text: str) -> str:
    """Cut to LONGEST characters, and unseen ones as Python escapes them: \\x1b, \\u202e."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
    return HIDDEN.sub(seen, cut)


def seen(found: re.Match[str]) -> str:
    """One character, visible."""
    mark = found[0]
    if mark in KEPT or unicodedata.category(mark) not in UNSEEN:
        return mark
    return mark.encode("unicode_escape", "surrogatepass").decode("ascii")


def well_formed(value: Any) -> Any:
    """Plain data without lone surrogates, which stand for names of files that are no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {well_formed(key): well_formed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [well_formed(each) for each in value]
    return value
