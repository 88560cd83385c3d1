"""Examines training scripts in the styles that people write, healthy and ill, unchanged.

python -m tests.clinic.scripts [--no-truth | --only-truth | --more-truth] [--rounds N] [--healthy]
    [NAME …]

Each patient of tests/clinic/patients is examined by `perfdoctor check --try-fixes`. For an ill one,
its style's healthy script and itself run in turn as fresh processes, which share no code with
perfdoctor (tests/clinic/truth.py): what repairing it is truly worth. Half of the rounds are run
before the examination and half after it, for on a shared machine that changes within the hour. A
patient is scored by the rank of its cause, by findings that are none, and by the reported gain
beside the true one.

What is known is saved after each patient; `--more-truth` adds rounds to those that are known, of
all patients with an estimated gain if none is named. `python -m tests.clinic.scripts --table`
prints the table of what is saved.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tests.clinic.patient import Patient, lay_out, patients
from tests.clinic.truth import WHOLE_RUN, ratios
from tests.saved import save

BUDGET_S = 120
ROUNDS = 2
NAME = "scripts"
RESULTS = Path(__file__).parent / "results" / f"{NAME}.json"


@dataclass(frozen=True)
class Row:
    """One patient: what was found, and the truth."""

    name: str
    cause: str | None
    about: str
    exit_code: int
    findings: tuple[dict[str, Any], ...]
    """Rank, check, summary, fix, gain, as the report has them."""
    step_ms: float | None
    seconds: float
    """That the examination took."""
    truth: tuple[float, ...] = ()
    """How many times faster the healthy script is, round by round."""

    @property
    def rank(self) -> int | None:
        """Of the cause among the findings."""
        return next((each["rank"] for each in self.findings if each["check"] == self.cause), None)

    @property
    def gain(self) -> dict[str, Any] | None:
        """What the report promises for the cause."""
        return next((each["gain"] for each in self.findings if each["check"] == self.cause), None)

    @property
    def false_alarms(self) -> list[str]:
        """Findings that are not the cause."""
        return [each["check"] for each in self.findings if each["check"] != self.cause]

    @property
    def true_gain(self) -> float | None:
        """The mean of the rounds."""
        return math.exp(fmean(map(math.log, self.truth))) if self.truth else None

    @property
    def error(self) -> float | None:
        """Of the reported gain: its ratio to the true one, less one."""
        if self.gain is None or self.true_gain is None:
            return None
        return float(self.gain["speedup"] / self.true_gain - 1)


def examined(patient: Patient, folder: Path) -> Row:
    """`perfdoctor check`, as a user calls it."""
    lay_out(patient, folder)
    args = (*patient.args, *WHOLE_RUN) if patient.measure == "run" else patient.args
    report = folder / "report.json"
    start = time.monotonic()
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "perfdoctor", "check", *patient.command, "--try-fixes"),
            *("--budget", str(BUDGET_S), "--format", "json", "--output", str(report)),
            *("--script-output", str(folder / "output.txt"), "--", *args),
        ],
        cwd=folder,
        env={**os.environ, **patient.env},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if not report.exists():
        raise RuntimeError(f"{patient.name}: {answer.stderr}")
    found = json.loads(report.read_text())
    steps = found["steps"] or {}
    return Row(
        name=patient.name,
        cause=patient.cause,
        about=patient.about,
        exit_code=answer.returncode,
        findings=tuple(
            {key: each[key] for key in ("rank", "check", "summary", "fix", "gain")}
            for each in found["findings"]
        ),
        step_ms=steps.get("time_ms"),
        seconds=round(time.monotonic() - start, 1),
    )


def truth(patient: Patient, healthy: Patient, rounds: int) -> tuple[float, ...]:
    """What the repair of an ill patient is worth, round by round."""
    if patient.cause is None or patient.measure == "none" or not rounds:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        return tuple(ratios(healthy, patient, rounds, Path(folder)))


def line(row: Row) -> str:
    """A row of the printed table."""
    gain = row.gain
    told = f"{gain['speedup']:.2f}x ({gain['low']:.2f}-{gain['high']:.2f})" if gain else "-"
    basis = gain["basis"] if gain else ""
    true = f"{row.true_gain:.2f}x" if row.true_gain else "-"
    error = f"{row.error:+.0%}" if row.error is not None else ""
    rank = "-" if row.cause is None else str(row.rank or "missed")
    step = f"{row.step_ms:.1f}" if row.step_ms else "-"
    others = " ".join(row.false_alarms)
    return (
        f"{row.name:<32} {row.cause or 'healthy':<15} {step:>7} {rank:>6}  {told:<20} {basis:<9} "
        f"{true:>7} {error:>5}  {others}"
    )


HEADING = (
    f"{'patient':<32} {'cause':<15} {'ms/step':>7} {'rank':>6}  {'the report':<20} {'':<9} "
    f"{'truth':>7} {'error':>5}  other findings"
)


def scores(rows: list[Row]) -> list[str]:
    """What the table amounts to."""
    ill = [row for row in rows if row.cause is not None]
    well = [row for row in rows if row.cause is None]
    first = sum(row.rank == 1 for row in ill)
    found = [
        f"{len(ill)} ill: the cause is named first in {first} ({first / max(1, len(ill)):.0%}), "
        f"at all in {sum(row.rank is not None for row in ill)}",
        f"{len(well)} healthy: {sum(bool(row.findings) for row in well)} with a finding",
        f"ill ones with another finding too: {sum(bool(row.false_alarms) for row in ill)}",
    ]
    for basis in ("measured", "estimated"):
        errors = [
            abs(row.error)
            for row in ill
            if row.error is not None and row.gain is not None and row.gain["basis"] == basis
        ]
        if errors:
            found.append(
                f"{basis} gains: {len(errors)}, off by {median(errors):.0%} in the median, "
                f"{max(errors):.0%} at most"
            )
    return found


def by_check(rows: list[Row]) -> list[str]:
    """The table of docs/trust.md: by cause, how many come first, and how true their gains are."""
    found = [
        "| check | scripts | named first | gain, off by (median) | truth in the interval |",
        "|---|---|---|---|---|",
    ]
    for cause in sorted({row.cause for row in rows if row.cause is not None}):
        members = [row for row in rows if row.cause == cause]
        known = [row for row in members if row.error is not None]
        inside = sum(
            row.gain is not None and row.gain["low"] <= row.true_gain <= row.gain["high"]
            for row in known
            if row.true_gain is not None
        )
        off = f"{median(abs(row.error or 0.0) for row in known) * 100:.0f} %" if known else "—"
        held = f"{inside} of {len(known)}" if known else "—"
        first = sum(row.rank == 1 for row in members)
        found.append(f"| `{cause}` | {len(members)} | {first} | {off} | {held} |")
    return found


def table(rows: list[Row]) -> list[str]:
    """All that is printed."""
    return [HEADING, *map(line, rows), "", *scores(rows), "", *by_check(rows)]


def saved_rows() -> dict[str, Row]:
    """Of earlier runs, by patient."""
    if not RESULTS.exists():
        return {}
    kept = [
        {**each, "findings": tuple(each["findings"]), "truth": tuple(each["truth"])}
        for each in json.loads(RESULTS.read_text())
    ]
    return {each["name"]: Row(**each) for each in kept}


def main() -> None:
    """All patients, or those that are named by their name or style."""
    options: list[str] = []
    names: list[str] = []
    rounds, arguments = ROUNDS, sys.argv[1:]
    if "--rounds" in arguments:
        index = arguments.index("--rounds")
        rounds = int(arguments[index + 1])
        del arguments[index : index + 2]
    for each in arguments:
        (options if each.startswith("--") else names).append(each)
    everyone = patients()
    healthy = {each.style: each for each in everyone if each.cause is None}
    rows = saved_rows()
    print(HEADING, flush=True)
    for patient in everyone:
        if "--table" in options or (names and not {patient.name, patient.style} & set(names)):
            continue
        if "--healthy" in options and patient.cause is not None:
            continue
        known = rows.get(patient.name)
        more = "--more-truth" in options
        if more and not (known and known.gain and (names or known.gain["basis"] == "estimated")):
            continue
        wanted = 0 if "--no-truth" in options else rounds
        only_truth = known and (more or "--only-truth" in options)
        before = wanted // 2 if not only_truth else 0
        found = truth(patient, healthy[patient.style], before)
        if known and only_truth:
            row = known
        else:
            with tempfile.TemporaryDirectory() as folder:
                row = examined(patient, Path(folder))
        found += truth(patient, healthy[patient.style], wanted - before)
        if known and (more or not wanted):
            found = (*known.truth, *found)
        row = replace(row, truth=found)
        print(line(row), flush=True)
        rows[patient.name] = row
        ordered = [rows[each.name] for each in everyone if each.name in rows]
        save(NAME, table(ordered), [asdict(each) for each in ordered], shown=False)
    print("\n".join(["", *table([rows[p.name] for p in everyone if p.name in rows])]))


if __name__ == "__main__":
    main()
