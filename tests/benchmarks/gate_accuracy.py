"""How often the gate is wrong: real comparisons of one program with itself, and with slower ones.

python -m tests.benchmarks.gate_accuracy collect MINUTES [CASE …]
python -m tests.benchmarks.gate_accuracy table

`collect` plays comparisons as `perfdoctor bench --against` does, of tests/benchmarks/gated.py with
a copy of itself whose step, data or compilation does some percent more, and adds each one to
results/gate_accuracy.jsonl as soon as it is over; so it can be run in several parts. A case is
compared at its own threshold: the smallest slowdown that it is to find lies above it.

On a machine that can spare one core for each, several may be collected at the same time, beside
each other: `taskset -c 0 python -m … &`, `taskset -c 1 python -m … &`.

`table` replays the decisions on what was collected, and those of other tools
(tests/benchmarks/gate_rules.py).
"""

import json
import math
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from perfdoctor.bench.comparison import GATED, compared
from perfdoctor.bench.decision import LOOKS
from perfdoctor.bench.launches import Side
from perfdoctor.bench.pairs import STEP_TIME, Pair, Pairs
from perfdoctor.observe.host import host
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import WorkerEnded
from tests.benchmarks.gate_rules import LAUNCHES, RULES
from tests.saved import save

PROGRAM = Path(__file__).parent / "gated.py"
COLLECTED = Path(__file__).parent / "results" / "gate_accuracy.jsonl"
BUDGET_S = 400.0
"""Of one comparison: room for all pairs, so that each one ends with a verdict or undecided."""
BUSY = "while True: pass"
LATER = timedelta(hours=1)
"""At most: still later may be on another machine."""
POINTS = 12
"""Of a launch's plot that are kept."""


@dataclass(frozen=True)
class Case:
    """What is compared: a program with itself, one part of it made longer."""

    name: str
    base: dict[str, int]
    """Units of work, by part."""
    slower: dict[str, int]
    metric: str
    """That the gate is to find slower; every other one must stay silent."""
    threshold: float
    load: bool = False
    """Whether another process keeps one core busy all the time."""
    shared: bool = False
    """Whether both cores work on one operation: compared with both, beside nothing else."""
    wanted: int = 20
    """Comparisons."""

    @property
    def gated(self) -> tuple[str, ...]:
        """As `bench` does: compiling is gated where it takes long and another step is compiled."""
        return GATED if "compile" in self.slower else (STEP_TIME,)

    @property
    def alone(self) -> bool:
        """Whether nothing else may be collected beside it."""
        return self.load or self.shared


STEP = {"step": 100, "compile": 20}
WIDE = {"step": 100, "compile": 20, "width": 160}
SHARED = {"step": 20, "compile": 20, "width": 384}
DATA = {"step": 2, "data": 200, "compile": 20}
COMPILE = {"step": 100, "compile": 800}
"""Some 2 s. One unit more is 1/800 of them, and compiling takes 1/500 longer: 2 % make 3 %."""
CASES = (
    Case("same", STEP, {}, "", 0.05, wanted=60),
    Case("same, wide", WIDE, {}, "", 0.05, wanted=60),
    Case("same, loading", DATA, {}, "", 0.05, wanted=50),
    Case("same, both cores", SHARED, {}, "", 0.05, shared=True),
    Case("same, one core busy", STEP, {}, "", 0.05, load=True, wanted=15),
    Case("step +5 %", STEP, {"step": 105}, "step_time", 0.03),
    Case("step +3 %", STEP, {"step": 103}, "step_time", 0.015),
    Case("step +10 %", STEP, {"step": 110}, "step_time", 0.05, wanted=10),
    Case("step +5 %, both cores", SHARED, {"step": 21}, "step_time", 0.03, shared=True, wanted=15),
    Case("step +5 %, one core busy", STEP, {"step": 105}, "step_time", 0.03, load=True, wanted=15),
    Case("data +5 %", DATA, {"data": 210}, "step_time", 0.03),
    Case("data +3 %", DATA, {"data": 206}, "step_time", 0.015),
    Case("data +10 %", DATA, {"data": 220}, "step_time", 0.05, wanted=10),
    Case("compilation +5 %", COMPILE, {"compile": 826}, "compile_time", 0.03),
    Case("compilation +3 %", COMPILE, {"compile": 816}, "compile_time", 0.015),
    Case("compilation +10 %", COMPILE, {"compile": 858}, "compile_time", 0.05, wanted=10),
)


def side(units: dict[str, int]) -> Side:
    """The program with so much work in its parts."""
    options = tuple(word for name, n in units.items() for word in (f"--{name}", str(n)))
    return Side(Launch((str(PROGRAM), *options), dict(os.environ)), "step")


def collect(minutes: float, names: Sequence[str]) -> None:
    """Play comparisons in random order until the time is up, or there are as many as wanted."""
    until = time.monotonic() + 60 * minutes
    named = [each for each in CASES if each.name in names or not names]
    cases = [each for each in named if cores() > 1 or not each.alone]
    while time.monotonic() < until:
        known = collected()
        missing = [max(0, each.wanted - len(known[each.name])) for each in cases]
        if not any(missing):
            break
        case = random.choices(cases, missing)[0]
        found = comparison(case)
        with COLLECTED.open("a") as file:
            file.write(json.dumps(found, separators=(",", ":")) + "\n")
        print(f"{case.name:<26} {found['verdict']:<13} {len(found['pairs']):>2} pairs", flush=True)


def cores() -> int:
    """That this process, and the programs that it compares, may use."""
    return len(os.sched_getaffinity(0))


def comparison(case: Case) -> dict[str, Any]:
    """One of a case, with its pairs."""
    pairs: list[tuple[Pair, float]] = []
    with ProcessGroups() as groups, busy(case.load):
        source = Pairs(groups, side(case.base), side({**case.base, **case.slower}))

        def play_one(until: float) -> Pair:
            start = time.monotonic()
            pair = source.play(until)
            pairs.append((pair, time.monotonic() - start))
            return pair

        until = time.monotonic() + BUDGET_S
        try:
            found = compared(
                play_one, case.name, case.threshold, until, lambda text: None, case.gated
            )
            verdict, why = str(found.verdict), found.summary
        except NothingMeasured as error:
            verdict, why = "none", str(error)
    return {
        "case": case.name,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": host().cpu_model,
        "cores": cores(),
        "verdict": verdict,
        "summary": why,
        "pairs": [kept(pair, seconds) for pair, seconds in pairs],
    }


def kept(pair: Pair, seconds: float) -> dict[str, Any]:
    """What is written down of a pair."""
    return {
        "seconds": round(seconds, 2),
        "contrasts": {name: round(value, 6) for name, value in pair.contrasts.items()},
        "controls": {name: round(value, 6) for name, value in pair.controls.items()},
        "launches": [
            {
                "mean_ms": round(each.mean_ms, 5),
                "median_ms": round(each.median_ms, 5),
                "compile_s": round(each.compile_s, 5),
                "values_ms": points(each.shape_ms),
            }
            for each in (*pair.baselines, pair.candidate)
        ],
    }


def points(shape_ms: Sequence[float]) -> list[float]:
    """The plot of a launch, with fewer points."""
    width = max(1, len(shape_ms) // POINTS)
    return [round(fmean(shape_ms[i : i + width]), 5) for i in range(0, len(shape_ms), width)]


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Another process that uses one core."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def collected() -> dict[str, list[dict[str, Any]]]:
    """All comparisons so far, by case."""
    found: dict[str, list[dict[str, Any]]] = {each.name: [] for each in CASES}
    if COLLECTED.exists():
        for line in COLLECTED.read_text().splitlines():
            each = json.loads(line)
            found.setdefault(each["case"], []).append(each)
    return found


def replayed(
    found: dict[str, Any], case: Case, threshold: float | None = None
) -> tuple[str, dict[str, str | None], int]:
    """The verdict, that of each gated metric, and the number of pairs that it took; at the case's
    own threshold, if no other is given.
    """
    pairs = iter(found["pairs"])

    def give(until: float) -> Pair:
        each = next(pairs, None)
        if each is None:
            raise WorkerEnded("no more were collected")
        return Pair(each["contrasts"], each["controls"], None, ())  # type: ignore[arg-type]

    limit = case.threshold if threshold is None else threshold
    answer = compared(give, case.name, limit, float("inf"), lambda text: None, case.gated)
    metrics: dict[str, str | None] = {
        each.name: each.verdict for each in answer.metrics if each.gated
    }
    return answer.verdict, metrics, answer.pairs


def line(case: Case, comparisons: list[dict[str, Any]]) -> str:
    """A row of the table: what the gate said, how soon, and how much slower the program is."""
    complete = [each for each in comparisons if each["verdict"] != "none"]
    answers = [replayed(each, case) for each in complete]
    seconds = [
        sum(pair["seconds"] for pair in each["pairs"][:n])
        for each, (_, _, n) in zip(complete, answers, strict=True)
    ]
    hits = sum(metrics.get(case.metric) == "regressed" for _, metrics, _ in answers)
    false = sum(
        any(v == "regressed" for name, v in metrics.items() if name != case.metric)
        for _, metrics, _ in answers
    )
    count = len(answers)
    open_ = sum(verdict == "inconclusive" for verdict, _, _ in answers)
    told = f"{hits} of {count}" if case.metric else "-"
    took = f"{median(seconds):.0f} s, {median(n for _, _, n in answers):.0f}" if answers else "-"
    effect = "-"
    if case.metric and complete:
        logs = [pair["contrasts"][case.metric] for each in complete for pair in each["pairs"]]
        effect = f"{fmean(logs):+.1%}"
    return (
        f"{case.name:<26} {case.threshold:>5.1%} {count:>5}  {effect:>6}  {told:>9}  "
        f"{false:>6}  {open_:>5}  {took:>11}"
    )


THRESHOLDS = (0.015, 0.03, 0.05)
"""At which all cases are judged alike."""


def chained(comparisons: Sequence[dict[str, Any]], case: Case, threshold: float) -> list[str]:
    """The verdicts on as many comparisons at this threshold as all pairs of a case are enough for.

    A comparison was ended when it was decided at the case's own threshold, which may be too early
    for another. So its pairs are joined to those of the next ones on a machine of the same kind:
    each pair is three launches of its own.
    """
    verdicts = []
    for kind in sorted({(each["cpu"], each["cores"]) for each in comparisons}):
        alike = [each for each in comparisons if (each["cpu"], each["cores"]) == kind]
        pairs = [pair for each in alike for pair in each["pairs"]]
        while len(pairs) >= LOOKS[0]:
            found = {"pairs": pairs}
            verdict, _, used = replayed(found, case, threshold)
            if used == len(pairs) and verdict == "inconclusive" and used < LOOKS[-1]:
                break  # more pairs would have been played
            verdicts.append(verdict)
            pairs = pairs[used:]
    return verdicts


def at_the_same_threshold(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """A line for each case: how often it is called slower at each of the THRESHOLDS."""
    yield f"{'called slower, at a threshold of':<34}" + "".join(f"{t:>12.1%}" for t in THRESHOLDS)
    for case in CASES:
        complete = [each for each in found[case.name] if each["verdict"] != "none"]
        told = []
        for threshold in THRESHOLDS:
            verdicts = chained(complete, case, threshold)
            told.append(f"{verdicts.count('regressed')} of {len(verdicts)}")
        yield f"{case.name:<34}" + "".join(f"{each:>12}" for each in told)


HEADING = (
    f"{'case':<26} {'limit':>5} {'runs':>5}  {'truly':>6}  {'found':>9}  {'false':>6}  "
    f"{'open':>5}  {'time, pairs':>11}"
)


def table() -> None:
    """Print and save what was collected amounts to."""
    found = collected()
    rows = [line(case, found[case.name]) for case in CASES]
    same = [(case, each) for case in CASES if not case.metric for each in found[case.name]]
    alarms = sum(
        replayed(each, case)[0] == "regressed" for case, each in same if each["verdict"] != "none"
    )
    lines = [
        HEADING,
        *rows,
        "",
        f"{len(same)} comparisons of a program with itself: {alarms} called slower",
        f"{sum(each['cores'] == 1 for _, each in same)} of them on one core, beside others",
        f"machines: {', '.join(sorted({each['cpu'] for _, each in same}))}",
        f"looks after {', '.join(map(str, LOOKS))} pairs",
        "",
        *at_the_same_threshold(found),
        "",
        *rules(found),
        "",
        "scatter of the baseline's step time between sessions",
        *sessions(found),
    ]
    save("gate_accuracy", lines, [asdict(case) for case in CASES])


def sessions(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """How much the baseline's own step time scatters from comparison to comparison: what saved
    numbers (bench/saved.py) have to reckon with, and live pairs have not.
    """
    times: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for case in CASES:
        for each in found[case.name]:
            logs = [math.log(pair["launches"][0]["mean_ms"]) for pair in each["pairs"]]
            if logs and not case.load:
                program = f"{each['cpu']}, cores: {each['cores']}, {case.base}"
                times[program].append((each["at"], fmean(logs)))
    lines = []
    for base, known in times.items():
        if len(known) > 2:
            begin, end = min(known)[0], max(known)[0]
            scatter = stdev(log for _, log in known)
            lines.append(f"{base}: {scatter:.1%} over {len(known)} sessions, {begin} to {end}")
    return lines


def rules(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What other tools say of the step times of the same launches, a line for each case."""
    lines = [f"{'called slower, of all':<31}" + "".join(f"{name:>18}" for name in RULES)]
    for case in CASES:
        if case.metric in ("", "step_time"):
            lines.append(ruled(case.name, grouped(found[case.name])))
    for case in CASES:
        if not case.metric:
            lines.append(ruled(f"{case.name}, later", apart(grouped(found[case.name]))))
    return lines


def ruled(name: str, groups: Sequence[Sequence[dict[str, Any]]]) -> str:
    """How many of them each rule calls slower."""
    told = [f"{sum(map(rule, groups))} of {len(groups)}" for rule in RULES.values()]
    return f"{name:<31}" + "".join(f"{each:>18}" for each in told)


def apart(groups: Sequence[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The baselines of each group with the candidates of the next, which ran some minutes later, on
    any core: as tools do it that measure one commit after the other.
    """
    at = datetime.fromisoformat
    return [
        [
            {"launches": [then["launches"][0], now["launches"][-1]]}
            for then, now in zip(before, after, strict=True)
        ]
        for before, after in pairwise(groups)
        if at(after[-1]["at"]) - at(before[0]["at"]) < LATER
    ]


def grouped(comparisons: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The pairs of a case, as many at a time as the rules are given; but for those whose launches
    have no plot, as the first eleven on both cores.
    """
    found = []
    for number in {each["cores"] for each in comparisons}:
        alike = [each for each in comparisons if each["cores"] == number]
        pairs = [
            {**pair, "at": each["at"]}
            for each in alike
            for pair in each["pairs"]
            if len(pair["launches"][0]["values_ms"]) > 1
        ]
        begins = range(0, len(pairs) - LAUNCHES + 1, LAUNCHES)
        found += [pairs[begin : begin + LAUNCHES] for begin in begins]
    return found


def main() -> None:
    """See above."""
    match sys.argv[1:]:
        case ["collect", minutes, *names]:
            collect(float(minutes), names)
        case ["table"]:
            table()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
