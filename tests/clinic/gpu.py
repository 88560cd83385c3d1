"""Runs `perfdoctor check`, with its default options, on a machine with a GPU; prints the reports.

`python -m tests.clinic.gpu [FAULT…]`; `reference` is the reference loop. Each takes up to two
minutes.
"""

import subprocess
import sys
from pathlib import Path

PATIENT = Path(__file__).parent / "patients" / "gpu_transformer.py"
FAULTS = ("none", "sync", "etl", "x64", "upload", "varlen", "small")
REFERENCE = "reference"
LIMIT_S = 180.0
"""The budget of a check, and time for its start and its end."""


def examined(fault: str) -> str:
    """The report, or why there is none."""
    target = [] if fault == REFERENCE else [str(PATIENT), "--", "--fault", fault]
    command = [sys.executable, "-m", "perfdoctor", "check", *target]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return answer.stdout or answer.stderr


def main() -> None:
    """Those that are named, or all of them."""
    for fault in sys.argv[1:] or (REFERENCE, *FAULTS):
        print(f"== {fault}\n\n{examined(fault)}", flush=True)


if __name__ == "__main__":
    main()
