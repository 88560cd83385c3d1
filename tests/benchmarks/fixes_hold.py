"""Does the report tell the truth? Its gains against fresh processes of the configurations.

python -m tests.benchmarks.fixes_hold [ROUNDS]

For each faulty sample: `perfdoctor check`; then the sample, and a copy of it with the lines changed
by hand as the report's `how` says, run in turn as fresh processes that share no code with the
trials (they train for a fixed time and count). Prints the report's interval beside the ratio found.
"""

import json
import math
import random
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tests.benchmarks.saved import save
from tests.command import SAMPLES, perfdoctor

FAULTY = ("slow_etl", "double_precision", "tiny_batch", "gc_pressure")
TRAIN = """
import sys, time
from pathlib import Path
from perfdoctor.processes import Ward
from perfdoctor.targets import workload
from perfdoctor.targets.reference import dataset
from perfdoctor.targets.reference.loop import TrainingLoop

if __name__ == "__main__":
    plan = workload.read(Path(sys.argv[1]))
    with Ward() as ward:
        folder = dataset.ensure(plan, ward, print)
    loop = TrainingLoop(plan, folder)
    loop.run(30); loop.wait()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < 6:
        loop.run(20); loop.wait(); steps += 20
    print(steps * plan.training.batch_size / (time.perf_counter() - start))
    loop.close()
"""


def by_hand(text: str, how: str) -> str:
    """The workload file with the line of the report, `[table] key = value, key = value`, in it."""
    raw: dict[str, Any] = tomllib.loads(text)
    table, _, assignments = how.partition("] ")
    pasted = tomllib.loads(assignments.replace(", ", "\n"))
    raw.setdefault(table.removeprefix("["), {}).update(pasted)
    lines = [f"expect = {json.dumps(raw.pop('expect'))}"]
    for name, fields in raw.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]
    return "\n".join(lines) + "\n"


def throughput(script: Path, workload: Path) -> float:
    """Samples per second of a fresh process."""
    answer = subprocess.run(
        [sys.executable, str(script), str(workload)], capture_output=True, text=True, check=True
    )
    return float(answer.stdout.split()[-1])


def compare(name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """The report's gain and the independent ratio of one sample."""
    faulty, fixed, script = SAMPLES / f"{name}.toml", folder / f"{name}.toml", folder / "train.py"
    script.write_text(TRAIN)
    report = json.loads(perfdoctor("check", str(faulty), "--format", "json").stdout)
    found = report["findings"][0]
    fixed.write_text(by_hand(faulty.read_text(), found["fix"]["how"]))
    ratios = []
    for _ in range(rounds):
        order = random.sample([faulty, fixed], 2)
        rates = {file: throughput(script, file) for file in order}
        ratios.append(math.log(rates[fixed] / rates[faulty]))
    ratio = math.exp(fmean(ratios))
    error = stdev(ratios) / math.sqrt(rounds)
    low, high = found["gain"]["low"], found["gain"]["high"]
    off = max(low / ratio - 1, ratio / high - 1, 0.0)
    return {
        "check": found["check"],
        "how": found["fix"]["how"],
        "gain": found["gain"],
        "ratio": ratio,
        "ratio_error": error,
        "off": off,
        "holds": off <= 0.10,
    }


def main() -> None:
    """All faulty samples."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    lines = ["sample             finding     report                fresh processes  outside by"]
    data = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FAULTY:
            seen = data[name] = compare(name, rounds, Path(folder))
            gain = seen["gain"]
            lines.append(
                f"{name:<17}  {seen['check']:<10}  {gain['speedup']:.2f}× ({gain['low']:.2f}–"
                f"{gain['high']:.2f})    {seen['ratio']:.2f}× ± {1.96 * seen['ratio_error']:.0%}"
                f"      {seen['off']:.0%}   {seen['how']}"
            )
    lines += ["", f"holds: {sum(seen['holds'] for seen in data.values())} of {len(data)}"]
    save("fixes_hold", lines, data)


if __name__ == "__main__":
    main()
