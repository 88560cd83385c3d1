"""Whether being observed changes anything of a script: its output, its results, its exit code.

python -m tests.clinic.identity [NAME …]

Each patient runs by itself, and under the observer with its profiler on; both for a few epochs, to
their end. Compared are the exit code, what is printed but for speeds and instants, which differ
between any two runs, and every file that is written, byte by byte.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfdoctor.injection import injected
from tests.clinic.patient import Patient, lay_out, patients
from tests.saved import save

CHOSEN = ("plain_mlp", "optax_cnn", "nnx_vision", "haiku_vae", "config_package", "eqx_series")
EPOCHS = ("--epochs", "12")
SPEED = re.compile(
    r"\d[\d,.]*(?:e[+-]?\d+)? examples/s|\d+(?:\.\d+)? ?(?:m?s|seconds)\b"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
)
"""Speeds, durations and the instants of log lines."""
WINDOW_S = 2.0


def run(patient: Patient, observed: bool) -> dict[str, Any]:
    """Exit code, output and files of one run."""
    with tempfile.TemporaryDirectory() as scratch:
        work, notes = Path(scratch) / "work", Path(scratch) / "notes"
        notes.mkdir()
        lay_out(patient, work)
        env = {**os.environ, **patient.env}
        if observed:
            env = injected(
                env,
                "perfdoctor.observe.agent.watch",
                folder=str(notes),
                steady_within_s=60.0,
                window_s=WINDOW_S,
            )
        answer = subprocess.run(
            [sys.executable, *patient.command, *patient.args, *EPOCHS],
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        files = {
            str(file.relative_to(work)): content(file)
            for file in sorted(work.rglob("*"))
            if file.is_file() and "__pycache__" not in file.parts
        }
        return {
            "exit_code": answer.returncode,
            "stdout": SPEED.sub("…", answer.stdout),
            "stderr": SPEED.sub("…", answer.stderr),
            "files": files,
            "traced": (notes / "closed-1").exists(),
        }


def content(file: Path) -> str:
    """Its hash; but for an entry of jax's cache, which holds the time that compiling took."""
    if file.name.endswith(("-cache", "-atime")):
        return "an entry of the compilation cache"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """All that are chosen, or those that are named."""
    names = sys.argv[1:] or list(CHOSEN)
    rows, lines = [], []
    for patient in patients():
        if patient.name not in names:
            continue
        alone, observed = run(patient, observed=False), run(patient, observed=True)
        same = {key: alone[key] == observed[key] for key in alone if key != "traced"}
        row = {
            "patient": patient.name,
            "exit_code": alone["exit_code"],
            "lines": len(alone["stdout"].splitlines()),
            "files": len(alone["files"]),
            "traced": observed["traced"],
            "equal": same,
        }
        rows.append(row)
        lines.append(
            f"{patient.name:<20} exit {row['exit_code']}, {row['lines']} lines, "
            f"{row['files']} files; traced: {row['traced']}; "
            + ("all equal" if all(same.values()) else f"different: {same}")
        )
        print(lines[-1], flush=True)
    save("identity", lines, rows)


if __name__ == "__main__":
    main()
