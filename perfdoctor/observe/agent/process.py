"""What is asked of the observed process itself: its environment, its code, its CPU time."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from perfdoctor.observe.agent import held


def dump_programs(jax: Any, folder: Path) -> str:
    """Have jax write each program that it compiles; where it does so already, to the same place."""
    theirs = jax.config.values.get("jax_dump_ir_to")
    if theirs:
        return str(theirs)
    folder.mkdir()
    jax.config.update("jax_dump_ir_to", str(folder))
    return str(folder)


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The variables that the program has set itself, or set anew."""
    return {name: value for name, value in now.items() if before.get(name) != value}


def own_folders() -> list[str]:
    """The folders of the program's own code: beside its script, or in the package that was run."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None:
        return []
    spec = getattr(main, "__spec__", None)
    depth = spec.name.count(".") if spec else 0
    return [str(Path(file).absolute().parents[max(0, depth - 1)])]


def cpu_s() -> float:
    """CPU time of this process and its descendants so far."""
    total = 0.0
    for pid in held.family():
        with suppress(psutil.Error):  # it has ended
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total
