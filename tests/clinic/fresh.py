"""Scripts that were written after the checks were frozen, most with four faults: once through.

python -m tests.clinic.fresh ROUND [NAME …]

ROUND is `first` to `sixteenth`, a folder of `fresh`: scripts that were examined once are known,
and the next are to be written by somebody else. Their authors knew the ids of the checks, and
neither perfdoctor's code nor the scripts on which it was tried. `cases.json` there has the lines by
which each fault differs from its healthy script, the environment, and which id is to come first;
`truth.json`, if it is there, what faults cost when their author tried them, in one short run each.
Else each is run by itself first: its last line tells how long its steps took; a fault's truth is
that of the healthy script, run before and after the faulty ones, over its own. Up to the thirteenth
round a slow one was run for 60 steps only, of which compiling may be more than it is in a long run.
Then each is examined by the default command, once, and the table is printed as it came out.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clinic.ward import line, summary
from tests.saved import commit, save

FOLDER = Path(__file__).parent / "fresh"
KEPT_AS = {
    "first": "fresh",
    "second": "fresh_second",
    "third": "fresh_third",
    "fourth": "fresh_fourth",
    "fifth": "fresh_fifth",
    "sixth": "fresh_sixth",
    "seventh": "fresh_seventh",
    "eighth": "fresh_eighth",
    "ninth": "fresh_ninth",
    "tenth": "fresh_tenth",
    "eleventh": "fresh_eleventh",
    "twelfth": "fresh_twelfth",
    "thirteenth": "fresh_thirteenth",
    "fourteenth": "fresh_fourteenth",
    "fifteenth": "fresh_fifteenth",
    "sixteenth": "fresh_sixteenth",
}
"""The names of their results."""
ENDED = re.compile(r"^done (\d+) steps in ([0-9.eE+-]+) s$", re.MULTILINE)
FIRST_STEPS = 60
"""To learn a script's rate."""
TRUTH_STEPS, TRUTH_S, LONGEST_S = 300, 4.0, 40.0
"""Then it makes as many steps, or as many as take so long, the larger of them, and fewer only where
they would take longer than the last one: what compiles again may do so every 50 steps."""
LIMIT_S = 240.0
UNSCORED = ("batch-size", "network", "shared-model", "memory", "idle-devices")
"""Their fixes change what a step is, or nothing about its speed."""


def cases(folder: Path) -> list[dict[str, Any]]:
    """As their author has written them down."""
    found: list[dict[str, Any]] = json.loads((folder / "cases.json").read_text())
    return [case | {"folder": folder} for case in found]


def written(case: dict[str, Any], folder: Path) -> Path:
    """The script of a case, as a file of its own."""
    text = (case["folder"] / f"{case['name']}.py").read_text()
    for old, new in case["edits"]:
        assert text.count(old) == 1, named(case)
        text = text.replace(old, new)
    script = folder / f"{case['name']}.py"
    script.write_text(text)
    return script


def ran(case: dict[str, Any], folder: Path, *command: str) -> tuple[str, float]:
    """What it printed, and how long it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | case["env"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.stdout + done.stderr, time.monotonic() - began


def rate(case: dict[str, Any], steps: int) -> float:
    """Steps a second; not a number, with what it printed, if it did not end as it should."""
    with tempfile.TemporaryDirectory() as name:
        script = written(case, Path(name))
        try:
            text, _ = ran(case, script.parent, str(script), str(steps))
        except subprocess.TimeoutExpired:
            text = "it took too long"
    ended = ENDED.findall(text)
    if not ended:
        print(f"{named(case)}: {text[-600:]}", file=sys.stderr)
        return math.nan
    made, seconds = ended[-1]
    return float(made) / float(seconds)


def rate_of(case: dict[str, Any]) -> float:
    """In as many steps as tell it, and the first ones at least."""
    first = rate(case, FIRST_STEPS)
    if not math.isfinite(first):
        return first
    steps = round(min(max(TRUTH_STEPS, TRUTH_S * first), LONGEST_S * first))
    return rate(case, steps) if steps > FIRST_STEPS else first


def truths(group: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of the cases of one script, by how many times slower than the healthy one they are."""
    [healthy] = [case for case in group if not case["expect"]]
    faulty = [case for case in group if case["expect"]]
    before = rate_of(healthy)
    rates = {named(case): rate_of(case) for case in faulty}
    usual = math.sqrt(before * rate_of(healthy))
    return {named(healthy): {"rate": usual}} | {
        name: {"rate": each, "speedup": usual / each} for name, each in rates.items()
    }


def named(case: dict[str, Any]) -> str:
    """Script and fault."""
    return f"{case['name']}-{case['fault']}"


def examined(case: dict[str, Any]) -> dict[str, Any]:
    """By the default command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        script = written(case, Path(folder))
        command = ("-m", "perfdoctor", "check", str(script))
        try:
            text, seconds = ran(
                case, script.parent, *command, "--format", "json", "--output", str(path)
            )
        except subprocess.TimeoutExpired:
            text, seconds = "it took too long", LIMIT_S
        report = json.loads(path.read_text()) if path.exists() else {"findings": [], "checks": []}
    if not report["checks"]:
        print(f"{named(case)}: {text[-600:]}", file=sys.stderr)
    return told(case, report, seconds)


def told(case: dict[str, Any], report: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a report says of a case, as the ward's runner tells it."""
    ids = [finding["check"] for finding in report["findings"]]
    ranks = [rank for rank, each in enumerate(ids, 1) if each in case["expect"]]
    own = report["findings"][ranks[0] - 1]["gain"] if ranks else None
    return {
        "case": named(case),
        "kind": "fault" if case["expect"] else "healthy",
        "expect": case["expect"],
        "rank": ranks[0] if ranks else None,
        "extra": [each for each in ids if each not in case["expect"]],
        "hints": [each["id"] for each in report["checks"] if each["outcome"] == "hint"],
        "gain": own["speedup"] if own else None,
        "gain_interval": [own["low"], own["high"]] if own else None,
        "basis": own["basis"] if own else None,
        "gain_scored": not set(case["expect"]) & set(UNSCORED),
        "wall": seconds,
        "steps": report.get("steps"),
        "findings": report["findings"],
        "checks": report["checks"],
    }


def kept(which: str, but: Sequence[str]) -> dict[str, Any]:
    """What was saved of this round's scripts, but of those that are examined now."""
    file = Path(__file__).parent / "results" / f"{KEPT_AS[which]}.json"
    if not but or not file.exists():
        return {"truth": {}, "rows": []}
    saved = json.loads(file.read_text())
    rows = [row for row in saved["rows"] if row["case"].partition("-")[0] not in but]
    return {"truth": {row["case"]: saved["truth"][row["case"]] for row in rows}, "rows": rows}


def main() -> None:
    """All of a round, or those that are named; what was saved of others is kept then."""
    which, *names = sys.argv[1:]
    chosen = [each for each in cases(FOLDER / which) if not names or each["name"] in names]
    known = FOLDER / which / "truth.json"
    truth: dict[str, dict[str, float]] = json.loads(known.read_text()) if known.exists() else {}
    before = kept(which, names)
    truth |= before["truth"]
    rows: list[dict[str, Any]] = before["rows"]
    whole = len(rows) + len(chosen)
    for name in dict.fromkeys(case["name"] for case in chosen):
        group = [case for case in chosen if case["name"] == name]
        if any(named(case) not in truth for case in group):
            truth |= truths(group)
        for case in group:
            rows.append(examined(case) | {"commit": commit()})
            print(line(rows[-1], truth[named(case)]), flush=True)
        lines = [line(row, truth[row["case"]]) for row in rows] + ["", *summary(rows, truth)]
        lines += [f"at {at}: {', '.join(each)}" for at, each in by_commit(rows).items()]
        save(KEPT_AS[which], lines, {"truth": truth, "rows": rows}, shown=len(rows) == whole)


def by_commit(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The scripts that were examined at each, where there are several."""
    found: dict[str, list[str]] = {}
    for row in rows:
        of_it = found.setdefault(row.get("commit", "an earlier commit"), [])
        name = row["case"].partition("-")[0]
        if name not in of_it:
            of_it.append(name)
    return found if len(found) > 1 else {}


if __name__ == "__main__":
    main()
