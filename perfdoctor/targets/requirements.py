"""What a target needs, and is not installed or too old: told in one sentence before anything runs.

`pip install perfdoctor` leaves the user's jax as it is, and brings nothing that only the reference
training loop imports; so both are asked for when they are needed. Nothing is imported for that.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import metadata

from perfdoctor.schema.errors import UsageError

OLDEST_JAX = "0.8"
"""The observer reads jax's own compile events, its traces and its profile as they are since then;
the tests run with it (.ci/versions)."""
EXTRA = "reference"
NEEDED = re.compile(rf"""([\w.-]+)\s*(?:>=\s*([\d.]+))?[^;]*;\s*extra\s*==\s*['"]{EXTRA}['"]""")
"""A line of a package's metadata: `optax>=0.2.6; extra == 'reference'`."""


def demand_jax() -> None:
    """A UsageError if the installed jax is too old; one that is missing is the probe's to tell."""
    found = installed("jax")
    if found is not None and numbers(found) < numbers(OLDEST_JAX):
        raise UsageError(
            f"jax {found} is too old, perfdoctor needs {OLDEST_JAX} or later: "
            "pip install --upgrade jax"
        )


def demand_reference() -> None:
    """A UsageError that says what to install, if the reference training loop can't run."""
    try:
        lines = metadata.requires("perfdoctor") or ()
    except metadata.PackageNotFoundError:
        raise UsageError(
            "Python finds no package metadata of perfdoctor, so that it is not known what the "
            "reference training loop needs: pip install 'perfdoctor[reference]'"
        ) from None
    missing = list(lacking(lines))
    if missing:
        raise UsageError(
            f"the reference training loop, which also runs workload files, needs "
            f"{', '.join(missing)}: pip install 'perfdoctor[{EXTRA}]' "
            "(your own script needs none of it: perfdoctor check train.py)"
        )


def lacking(lines: Iterable[str]) -> Iterator[str]:
    """Of the requirements of the extra, those that are not installed or too old, in words."""
    for line in lines:
        if (needed := NEEDED.match(line)) is None:
            continue
        name, least = needed[1], needed[2]
        found = installed(name)
        if found is None:
            yield name
        elif least and numbers(found) < numbers(least):
            yield f"{name} {least} or later (here is {found})"


def installed(name: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """Of a version, as far as they decide which one is newer: 0.8.0.dev1 is 0.8.0."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[^\d.]", version)[0])))
