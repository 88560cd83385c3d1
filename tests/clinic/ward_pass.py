"""One pass over the ward in which each script's truths are measured right after its checks.

python -m tests.clinic.ward_pass WARD OUT [PATIENT ...]

WARD is a copy of the ward's folder, whose `run_ward.py` and `truth.py` write beside it;
`PERFDOCTOR` names the command, `WARD_SCRATCH` the folder of its builds. OUT gets `results.json` and
`truth.json`, for `python -m tests.clinic.ward`. What a repair is worth moves with the machine from
hour to hour, by a half for some cases; so truths of another time say little of how far off a gain
is.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROUNDS = 2
"""Of truth, each with a healthy run before and after the faulty ones."""


def patients(ward: Path) -> list[str]:
    """In their order."""
    return list(json.loads((ward / "cases.json").read_text())["patients"])


def run(ward: Path, script: str, *arguments: str) -> None:
    """One of the ward's own scripts."""
    subprocess.run([sys.executable, script, *arguments], cwd=ward, check=True)


def examined(ward: Path, out: Path, patient: str) -> list[dict[str, Any]]:
    """The rows of a patient's cases."""
    file = out / f"{patient}.results.json"
    run(ward, "run_ward.py", "--patients", patient, "--keep", str(out), "--out", str(file))
    return list(json.loads(file.read_text())["rows"])


def truths(ward: Path, out: Path, patient: str, faults: list[str]) -> dict[str, Any]:
    """What the repairs of its faults are worth."""
    file, runs = out / f"{patient}.truth.json", out / f"{patient}.runs.jsonl"
    where = ("--out", str(file), "--runs", str(runs))
    run(ward, "truth.py", "--fresh", "--rounds", str(ROUNDS), "--only", ",".join(faults), *where)
    return dict(json.loads(file.read_text())["cases"])


def main() -> None:
    """Patient by patient; what is measured by then is kept."""
    ward, out = (Path(each).resolve() for each in sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    true: dict[str, Any] = {}
    for patient in sys.argv[3:] or patients(ward):
        found = examined(ward, out, patient)
        rows += found
        faults = [row["case"] for row in found if row["kind"] == "fault" and row["gain_scored"]]
        if faults:
            measured = truths(ward, out, patient, faults)
            true |= {case: measured[case] for case in faults if case in measured}
        (out / "results.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        (out / "truth.json").write_text(json.dumps({"cases": true}, indent=1) + "\n")


if __name__ == "__main__":
    main()
