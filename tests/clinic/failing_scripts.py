"""How long `perfdoctor check` takes for scripts with which something is wrong, and what it says.

python -m tests.clinic.failing_scripts

The scripts are those of tests/scripts_that_fail.py. Each must end within the budget and GRACE_S,
say what has to be said, exit as it has to, and leave no process behind.
"""

import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

from tests.saved import save
from tests.scripts_that_fail import CASES, Case

BUDGET_S, GRACE_S = 30, 10
AROUND = "competing-processes,throttling"
"""What else runs on the machine is no matter of theirs."""
MARK = "PERFDOCTOR_CLINIC"


def left_behind(mark: str) -> int:
    """Processes that still carry the mark in their environment."""
    found = 0
    for process in psutil.process_iter():
        try:
            found += process.environ().get(MARK) == mark
        except psutil.Error:
            continue
    return found


def examined(case: Case) -> dict[str, object]:
    """What it came to."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "work"
        folder.mkdir()
        (folder / case.file).write_text(case.script)
        start = time.monotonic()
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "perfdoctor", "check", case.file),
                *("--budget", str(BUDGET_S), "--ignore", AROUND),
            ],
            cwd=folder,
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        seconds = time.monotonic() - start
    sentence = answer.stdout.split("\n\n")[1] if "\n\n" in answer.stdout else answer.stderr[-200:]
    return {
        "name": case.name,
        "seconds": round(seconds, 1),
        "exit_code": answer.returncode,
        "sentence": " ".join(sentence.split()),
        "right": case.says in " ".join(answer.stdout.split())
        and answer.returncode == case.exit_code
        and seconds <= BUDGET_S + GRACE_S,
        "left_behind": left_behind(mark),
    }


def main() -> None:
    """All of them."""
    rows, lines = [], []
    for case in CASES:
        row = examined(case)
        rows.append(row)
        verdict = "right" if row["right"] and not row["left_behind"] else "WRONG"
        lines.append(
            f"{case.name:<34} {row['seconds']:>5} s  exit {row['exit_code']}  {verdict}  "
            f"{row['sentence']}"
        )
        print(lines[-1], flush=True)
    right = sum(bool(row["right"]) and not row["left_behind"] for row in rows)
    lines += ["", f"{right} of {len(rows)} right, within {BUDGET_S} + {GRACE_S} s"]
    save("failing_scripts", lines, rows)


if __name__ == "__main__":
    main()
