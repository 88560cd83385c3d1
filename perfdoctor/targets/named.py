"""A user's workload object, named as package.module:name; this process never imports it."""

import os
import re
from pathlib import Path

import msgspec

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Target
from perfdoctor.schema.parts import Orders, Parts, Told

LOOP = "perfdoctor.targets.workload_object"
"""The module that runs a workload object."""
DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
"""A dotted name of Python."""
OBJECT = re.compile(rf"{DOTTED}:{DOTTED}")
"""An object of a module: package.module:name."""
FILE = re.compile(r"(?P<path>[^:]+)\.py:(?P<name>.+)")
"""An object of a file: folder/file.py:name."""


def is_named(name: str | None) -> bool:
    """Whether a target is an object of a module, rather than a file."""
    return name is not None and ":" in name and not Path(name).exists()


def named(name: str) -> Target:
    """The target package.module:name; a UsageError if it is written otherwise."""
    found, meant = FILE.fullmatch(name), ""
    if found is None and OBJECT.fullmatch(name):
        return Target(kind="workload", name=name)
    if found is not None:
        module = ".".join(Path(found["path"]).parts)
        meant = f"; did you mean {module}:{found['name']}?"
    raise UsageError(f"{name} names no object; expected package.module:name{meant}")


def launch(
    name: str, change: Change, orders: Path, told: Path, output: int | None = None
) -> Launch:
    """How to start its loop; writes what that is told to `orders`. `output`: see `Launch`."""
    orders.write_bytes(msgspec.json.encode(Orders(name=name, told=str(told), change=change)))
    return Launch(command=("-m", LOOP, str(orders)), env=dict(os.environ), output=output)


def parts_told(told: Path) -> Parts | None:
    """What the loop told of the object; None if it did not come so far.

    Raises:
        UsageError: it is no workload.
    """
    try:
        found = msgspec.json.decode(told.read_bytes(), type=Told)
    except FileNotFoundError:
        return None
    if found.refused is not None:
        raise UsageError(found.refused)
    return found.parts
