"""A user's own script or module: started as Python would start it."""

import os
from collections.abc import Sequence
from pathlib import Path

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Target

MODULE = "-m "
"""How the name of a target begins that is a module."""


def script(file: Path, arguments: Sequence[str]) -> Target:
    """The target `python FILE ARGUMENTS…`."""
    if not file.exists():
        raise UsageError(f"{file}: no such file; expected a Python script")
    if not os.access(file, os.R_OK):
        raise UsageError(f"{file} can't be read; expected a Python script")
    return Target(kind="script", name=str(file), args=tuple(arguments))


def module(name: str, arguments: Sequence[str]) -> Target:
    """The target `python -m NAME ARGUMENTS…`."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"-m {name}: not the name of a module; expected package.module")
    return Target(kind="script", name=MODULE + name, args=tuple(arguments))


def launch(target: Target, output: int | None) -> Launch:
    """How to start it; `output`: see `Launch`."""
    name = target.name
    what = ("-m", name.removeprefix(MODULE)) if name.startswith(MODULE) else (name,)
    return Launch(command=(*what, *target.args), env=dict(os.environ), output=output)
