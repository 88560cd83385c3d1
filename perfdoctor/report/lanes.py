"""What all renderers of a timeline say alike."""

from collections import Counter
from collections.abc import Sequence

from perfdoctor.report.words import HOST

PARTS = {"device": "computing", **HOST, "copy": "copying to the device"}
"""What lanes do, in words."""
MARKS = {
    "outlier": "outliers",
    "collection": "collections",
    "compilation": "compilations",
    "wait": "waits",
}
"""The tracks of marks, the first on top."""


def unique(names: Sequence[str]) -> list[str]:
    """The names, with a number where one occurs again: a reader could not tell them apart."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
