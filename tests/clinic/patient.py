"""Training scripts in the styles that people write: each healthy, and with natural faults.

A style is a folder of tests/clinic/patients: a script, healthy as it stands, and a patient.toml
that tells how to start it and which faults it can have, each as a small edit of the script, as
variables of its environment or as arguments. The scripts know nothing of this.
"""

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "patients"
CARD = "patient.toml"
NOT_COPIED = shutil.ignore_patterns(CARD, "__pycache__")


@dataclass(frozen=True)
class Patient:
    """A script, healthy or with one fault."""

    style: str
    """The folder's name."""
    name: str
    """Of the healthy one the style, of an ill one `style-fault`."""
    about: str
    cause: str | None
    """The check that must come first; None: healthy."""
    command: tuple[str, ...]
    """What follows `python`."""
    args: tuple[str, ...]
    """What follows the command."""
    env: dict[str, str]
    """Variables that are set beside those of this process."""
    edits: tuple[tuple[str, str, str], ...]
    """File, old text, new text."""
    repaired: tuple[str, ...]
    """Arguments of the healthy one to which the truth is measured: where the usual ones are another
    repair than the one that a report proposes, a batch of 64 in place of 32, say."""
    measure: str
    """What tells the truth: throughput, or run (from start to end)."""
    requires: tuple[str, ...]
    """Packages beyond those that perfdoctor itself needs."""


def patients() -> list[Patient]:
    """All of them: each style's healthy one, then its ill ones."""
    return [each for card in sorted(FOLDER.glob(f"*/{CARD}")) for each in of_style(card)]


def of_style(card: Path) -> list[Patient]:
    """The healthy one of a style, and one for each fault."""
    style, raw = card.parent.name, tomllib.loads(card.read_text())
    usual = {"about": raw["about"], "cause": None, **raw.get("healthy", {})}
    healthy = patient(style, style, raw, usual)
    faults = raw.get("fault", [])
    return [healthy, *(patient(style, f"{style}-{each['name']}", raw, each) for each in faults)]


def patient(style: str, name: str, raw: dict[str, Any], fault: dict[str, Any]) -> Patient:
    """One of them; what a fault does not say is as in the healthy one."""
    return Patient(
        style=style,
        name=name,
        about=fault["about"],
        cause=fault["cause"],
        command=tuple(raw["command"]),
        args=tuple(fault.get("args", ())),
        env=dict(fault.get("env", {})),
        edits=tuple((file, old, new) for file, old, new in fault.get("edits", ())),
        repaired=tuple(fault.get("repaired", ())),
        measure=fault.get("measure", "throughput"),
        requires=tuple(raw.get("requires", ())),
    )


def lay_out(patient: Patient, folder: Path) -> None:
    """Copy the style's files into a folder, and make the edits.

    Raises:
        ValueError: what an edit replaces does not occur exactly once.
    """
    shutil.copytree(FOLDER / patient.style, folder, ignore=NOT_COPIED, dirs_exist_ok=True)
    for file, old, new in patient.edits:
        text = (folder / file).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{patient.name}: {text.count(old)} times in {file}: {old!r}")
        (folder / file).write_text(text.replace(old, new))
