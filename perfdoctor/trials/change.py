"""Applies a Change to a workload and its environment."""

from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.schema.fix import Change, Scalar
from perfdoctor.schema.workload import Workload


def merged(changes: list[Change]) -> Change:
    """All changes together; later ones win."""
    env: dict[str, str | None] = {}
    workload: dict[str, Any] = {}
    folders: dict[str, None] = {}
    settings: dict[str, Scalar] = {}
    cores: tuple[int, ...] = ()
    step: dict[str, Scalar] = {}
    for change in changes:
        env.update(change.env)
        workload.update(change.workload)
        folders.update(dict.fromkeys(change.folders))
        settings.update(change.settings)
        cores = change.cores or cores
        step.update(change.step)
    return Change(
        env=env,
        workload=workload,
        folders=tuple(folders),
        settings=settings,
        gc_freeze=any(change.gc_freeze for change in changes),
        gc_skip_collect=any(change.gc_skip_collect for change in changes),
        cores=cores,
        step=step,
    )


def go_together(changes: list[Change]) -> bool:
    """Whether no two of them want another program of the replayed step."""
    return len({change.step["program"] for change in changes if "program" in change.step}) < 2


def changed_workload(workload: Workload, change: Change) -> Workload:
    """The workload with the fields of the change; ValidationError if one is out of bounds."""
    raw: dict[str, Any] = msgspec.to_builtins(workload)
    for key, value in change.workload.items():
        *tables, name = key.split(".")
        table = raw
        for each in tables:
            table = table[each]
        table[name] = value
    return msgspec.convert(raw, Workload)


def changed_env(env: dict[str, str], change: Change, folder: Path) -> dict[str, str]:
    """The environment with the variables of the change set or removed.

    `folder`: where the folders lie that the change asks for, the same for each launch.
    """
    folders = {name: str(folder / name) for name in change.folders}
    together = {**env, **change.env, **folders}
    return {name: value for name, value in together.items() if value is not None}
