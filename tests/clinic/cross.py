"""The same fault through a listener, as a script and as a workload: is the first finding the same?

python -m tests.clinic.cross [FORM …] [--cases NAME …] [--budget SECONDS]

The modules of tests/clinic/crossed each hold one fault, and `init`, `step` and `batches`. A form
makes a runnable thing of that source text, examines it, and returns the report. What is known is
saved after each case, so that forms can be added one by one; the table shows what each form said
first, and whether the gains agree.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.saved import save

CROSSED = Path(__file__).parent / "crossed"
NAME = "cross"
RESULTS = Path(__file__).parent / "results" / f"{NAME}.json"
WIDTH = 28
"""Of a column."""
AGREE = 0.10
"""Gains that differ by less are the same."""
Report = dict[str, Any]
"""As JSON has it: perfdoctor.report/1."""


@dataclass(frozen=True)
class Case:
    """A fault."""

    name: str
    cause: str
    """The id of its check; empty: it is healthy."""

    @property
    def source(self) -> str:
        """The text that all forms are made of."""
        return (CROSSED / f"{self.name}.py").read_text()


CASES = (
    Case("healthy", ""),
    Case("slow_loading", "etl"),
    Case("collecting", "gc"),
    Case("reading", "host-sync"),
    Case("recompiling", "recompilation"),
    Case("wide", "dtype"),
    Case("uploading", "transfers"),
    Case("not_compiled", "debug-flags"),
    Case("tiny_batch", "batch-size"),
    Case("not_jitted", "missing-jit"),
    Case("calling_back", "cpu-only-ops"),
)

SCRIPT = """

if __name__ == "__main__":
    state = init()
    for batch in batches():
        state, metrics = step(state, batch)
"""

WORKLOAD = """

import sys

workload = sys.modules[__name__]
"""

LISTENED = """

if __name__ == "__main__":
    import sys
    import time
    from pathlib import Path
    from perfdoctor import PerformanceListener

    state = init()
    with PerformanceListener(batch_size=BATCH, every=100) as listener:
        diagnosis, until = None, time.monotonic() + 2 * float(sys.argv[2])
        for n, batch in enumerate(listener.batches(batches())):
            state, metrics = step(state, batch)
            listener.step(score=metrics)
            if n == 20:
                diagnosis = listener.diagnose(budget_s=float(sys.argv[2]), show=False)
            if n > 20 and (diagnosis.done or time.monotonic() > until):
                break
    Path(sys.argv[1]).write_text(diagnosis.report().text("json"))
"""


def as_script(case: Case, folder: Path, budget_s: float) -> Report:
    """`perfdoctor check`, which starts it."""
    (folder / "train.py").write_text(case.source + SCRIPT)
    return asked(folder, "-m", "perfdoctor", "check", "train.py", *options(budget_s))


def through_listener(case: Case, folder: Path, budget_s: float) -> Report:
    """A loop that nobody started for perfdoctor, and that asks for a diagnosis while it runs."""
    (folder / "train.py").write_text(case.source + LISTENED)
    return asked(folder, "train.py", "report.json", str(budget_s))


def as_workload(case: Case, folder: Path, budget_s: float) -> Report:
    """`perfdoctor check`, whose own loop runs the parts."""
    (folder / "train.py").write_text(case.source + WORKLOAD)
    return asked(folder, "-m", "perfdoctor", "check", "train:workload", *options(budget_s))


def options(budget_s: float) -> tuple[str, ...]:
    """Of `perfdoctor check`."""
    return ("--budget", str(budget_s), "--format", "json", "--output", "report.json")


def asked(folder: Path, *command: str) -> Report:
    """The report that a Python program leaves in its folder."""
    answer = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    report = folder / "report.json"
    if not report.exists():
        raise RuntimeError(f"{' '.join(command)}: {answer.stderr}")
    found: Report = json.loads(report.read_text())
    return found


Form = Callable[[Case, Path, float], Report]
FORMS: Mapping[str, Form] = {
    "script": as_script,
    "listener": through_listener,
    "workload": as_workload,
}
"""To add a form is to add a line here."""


def first(report: Report) -> str:
    """The check whose finding stands first; empty for a healthy run."""
    return str(report["findings"][0]["check"]) if report["findings"] else ""


def gain(report: Report) -> float | None:
    """Of the first finding."""
    told = report["findings"][0]["gain"] if report["findings"] else None
    return float(told["speedup"]) if told else None


def can_see(report: Report, cause: str) -> bool:
    """Whether the form could look for it at all."""
    return all(
        each["outcome"] != "not-measured" for each in report["checks"] if each["id"] == cause
    )


def agree(gains: Sequence[float]) -> bool:
    """Whether the largest and the smallest are nearly the same."""
    return not gains or math.log(max(gains) / min(gains)) <= math.log(1 + AGREE)


def line(case: Case, told: Mapping[str, Report]) -> str:
    """Of the table: what each form said first."""
    cells = []
    for form in FORMS:
        if form not in told:
            cells.append("-")
            continue
        value = gain(told[form])
        cells.append((first(told[form]) or "none") + (f" {value:.2f}x" if value else ""))
    looked = [report for report in told.values() if can_see(report, case.cause)]
    same = len({first(report) for report in looked}) <= 1
    gains = [value for report in looked if (value := gain(report))]
    verdict = ("same" if same else "DIFFERENT") + ("" if agree(gains) else ", gains differ")
    cells = [cell.ljust(WIDTH) for cell in cells]
    return f"{case.name:14s} {case.cause or 'healthy':14s} {''.join(cells)} {verdict}"


def heading() -> str:
    """Of the table."""
    return (
        f"{'case':14s} {'cause':14s} {''.join(form.ljust(WIDTH) for form in FORMS)} first finding"
    )


def examined(form: str, case: Case, budget_s: float) -> Report:
    """One case in one form, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = FORMS[form](case, Path(folder), budget_s)
    kept: Report = {key: report[key] for key in ("checks", "steps")}
    told = ("check", "rank", "summary", "gain", "remaining_gain")
    return kept | {"findings": [{key: each[key] for key in told} for each in report["findings"]]}


def main() -> None:
    """All forms of all cases, or those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("forms", nargs="*", choices=[[], *FORMS], default=[])
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    parser.add_argument("--budget", type=float, default=60.0)
    wanted = parser.parse_args()
    known: dict[str, dict[str, Report]] = (
        json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    )
    for case in CASES:
        told = known.setdefault(case.name, {})
        for form in (wanted.forms or FORMS) if case.name in wanted.cases else ():
            told[form] = examined(form, case, wanted.budget)
            print(f"{form}: {line(case, told)}", file=sys.stderr, flush=True)
            rows = [line(case, known[case.name]) for case in CASES if known.get(case.name)]
            save(NAME, [heading(), *rows], known, shown=False)
    print("\n".join([heading(), *(line(each, known.get(each.name, {})) for each in CASES)]))


if __name__ == "__main__":
    main()
