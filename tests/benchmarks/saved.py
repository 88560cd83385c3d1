"""Saves a measurement with what is needed to judge it: date, machine, versions, command."""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfdoctor.observe.host import host
from perfdoctor.observe.libraries import libraries

RESULTS = Path(__file__).parent / "results"


def save(name: str, lines: list[str], data: Any) -> None:
    """Print the lines; keep them, and the data, as results/NAME.txt and results/NAME.json."""
    machine, installed = host(), libraries()
    packages = ", ".join(f"{k} {v}" for k, v in installed.packages.items())
    module = Path(sys.argv[0]).stem
    command = shlex.join(["python", "-m", f"tests.benchmarks.{module}", *sys.argv[1:]])
    heading = [
        f"date      {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"machine   {machine.cpu_model}, {machine.usable_cores:g} cores, {machine.os}",
        f"versions  Python {installed.python}, {packages}",
        f"command   {command}",
        "",
    ]
    text = "\n".join([*heading, *lines]) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.txt").write_text(text)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
