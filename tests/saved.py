"""Saves a measurement with what is needed to judge it: date, machine, versions, commit, command."""

import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfdoctor.observe.host import host
from perfdoctor.observe.libraries import libraries


def save(
    name: str, lines: list[str], data: Any, *, shown: bool = True, measured: str | None = None
) -> None:
    """Print the lines; keep them, and the data, as results/NAME.txt and results/NAME.json.

    The folder `results` lies beside the script that runs. `measured`: the commit that was measured,
    if it is not the one that runs.
    """
    machine, installed = host(), libraries()
    packages = ", ".join(f"{k} {v}" for k, v in installed.packages.items())
    script = Path(sys.argv[0])
    module = f"tests.{script.parent.name}.{script.stem}"
    command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    heading = [
        f"date      {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"machine   {machine.cpu_model}, {machine.usable_cores:g} cores, {machine.os}",
        f"versions  Python {installed.python}, {packages}",
        f"commit    {measured or commit()}",
        f"command   {command}",
        "",
    ]
    text = "\n".join([*heading, *lines]) + "\n"
    if shown:
        print(text)
    results = script.parent / "results"
    results.mkdir(exist_ok=True)
    (results / f"{name}.txt").write_text(text)
    (results / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")


def commit() -> str:
    """What was measured, as far as git knows; results that are saved meanwhile are no changes."""
    try:
        told = git("describe", "--always", "--exclude=*")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/*/results/*")
        return f"{told} with changes" if changed else told
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def git(*command: str) -> str:
    """What it answers."""
    return subprocess.check_output(["git", *command], text=True, stderr=subprocess.DEVNULL).strip()
