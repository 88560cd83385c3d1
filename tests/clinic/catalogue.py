"""For every check: a run in which its cause is at work, its rank, its gain, and the truth.

python -m tests.clinic.catalogue [--truth] [ROUNDS] [CASE …]

Each sample workload is examined by `perfdoctor check`. Then the sample, and the sample with the
change that the report names, run in turn as fresh processes that share no code with the trials:
they train for a fixed time and count, or, where a fix makes the start of a run faster, run from
start to end. Prints rank and gain beside the ratio found, and its
lowest and highest round. Two causes are made around a healthy run:
another process that computes, and a quota of a control group (version 1, as root).

The observations are kept in tests/observations, for the tests of the checks. With `--truth` the
reports are made of those, and only the fresh processes run again.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.command import SAMPLES
from tests.recorded import saved
from tests.saved import save

TRAIN = """
import sys, time
from pathlib import Path
from perfdoctor.processes import ProcessGroups
from perfdoctor.targets import workload
from perfdoctor.targets.reference import dataset
from perfdoctor.targets.reference.loop import TrainingLoop
from perfdoctor.targets.reference.serving import Serving

if __name__ == "__main__":
    plan, run_s = workload.read(Path(sys.argv[1])), float(sys.argv[2])
    with ProcessGroups() as groups:
        folder = dataset.ensure(plan, groups, print)
    if run_s == 0:  # from start to end
        TrainingLoop(plan, folder).run(plan.training.steps)
        sys.exit()
    serving = plan.inference.clients > 0
    loop = (Serving if serving else TrainingLoop)(plan, folder)
    loop.run(2); loop.wait()  # compiled
    steps = 1
    while True:  # so many steps that starting and draining the pipeline does not show
        start = time.perf_counter()
        loop.run(steps); loop.wait()
        if time.perf_counter() - start > run_s / 10:
            break
        steps *= 2
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < run_s:
        loop.run(steps); loop.wait(); count += steps
    print(count * (1 if serving else plan.training.batch_size) / (time.perf_counter() - start))
    loop.close()
"""
RUN_S = 3.0
HEADING = (
    "check                sample            rank  the report                     "
    "fresh runs            check   fix"
)
COMPETITOR = "while True: pass"
QUOTA_GROUP = Path("/sys/fs/cgroup/cpu/perfdoctor-clinic")
QUOTA_CORES = 0.5


@dataclass
class Case:
    """A cause, and what shows it."""

    check: str
    sample: str
    around: str | None = None
    """What is made around the run, and taken away for the truth: competitor or quota."""

    @property
    def name(self) -> str:
        """Of its observation."""
        return self.around or self.sample


CASES = [
    Case("avx", "vector_sets"),
    Case("backend", "wrong_platform"),
    Case("batch-size", "tiny_batch"),
    Case("batch-size", "huge_batch"),
    Case("competing-processes", "healthy", around="competitor"),
    Case("compile-cache", "compile_cache"),
    Case("cpu-only-ops", "host_callback"),
    Case("debug-flags", "debug_flags"),
    Case("dtype", "double_precision"),
    Case("etl", "slow_etl"),
    Case("gc", "gc_pressure"),
    Case("host-sync", "host_sync"),
    Case("idle-devices", "idle_devices"),
    Case("memory", "memory_leak"),
    Case("missing-jit", "missing_jit"),
    Case("network", "large_kernel"),
    Case("omp-threads", "omp_threads"),
    Case("recompilation", "recompilation"),
    Case("shared-model", "shared_model"),
    Case("throttling", "healthy", around="quota"),
    Case("transfers", "transfers"),
    Case("workspaces", "workspaces"),
]


@contextmanager
def surroundings(kind: str | None) -> Iterator[list[str]]:
    """The cause that lies around a run; yields what a command must begin with to be in it."""
    if kind == "competitor":
        other = subprocess.Popen([sys.executable, "-c", COMPETITOR])
        try:
            yield []
        finally:
            other.kill()
            other.wait()
    elif kind == "quota":
        QUOTA_GROUP.mkdir()
        try:
            period_us = 100_000
            (QUOTA_GROUP / "cpu.cfs_period_us").write_text(str(period_us))
            (QUOTA_GROUP / "cpu.cfs_quota_us").write_text(str(round(QUOTA_CORES * period_us)))
            yield ["sh", "-c", f'echo $$ > {QUOTA_GROUP}/cgroup.procs; exec "$@"', "sh"]
        finally:
            QUOTA_GROUP.rmdir()
    else:
        yield []


def check(case: Case, again: bool) -> dict[str, Any]:
    """The report on a case, of a run whose observation is kept, or of the one that was kept."""
    command = [sys.executable, "-m", "perfdoctor", "check", "--format", "json"]
    if again:
        command += [str(saved(case.name))]
    else:
        command += [str(SAMPLES / f"{case.sample}.toml")]
        command += ["--save-observation", str(saved(case.name))]
    with surroundings(None if again else case.around) as prefix:
        answer = subprocess.run([*prefix, *command], capture_output=True, text=True)
    if answer.returncode not in (0, 1):
        raise SystemExit(f"{case.sample}: {answer.stderr or answer.stdout}")
    report: dict[str, Any] = json.loads(answer.stdout)
    return report


def changed(raw: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A workload with the fields of a change, by hand."""
    copy: dict[str, Any] = json.loads(json.dumps(raw))
    for name, value in change.get("workload", {}).items():
        table, _, key = name.partition(".")
        copy.setdefault(table, {})[key] = value
    return copy


def as_toml(raw: dict[str, Any]) -> str:
    """A workload as a file."""
    lines = [f"expect = {json.dumps(raw.get('expect', []))}"]
    for name, fields in raw.items():
        if name != "expect":
            plain = {key: value for key, value in fields.items() if key != "env"}
            lines += [f"[{name}]", *(f"{key} = {json.dumps(v)}" for key, v in plain.items())]
    return "\n".join(lines) + "\n"


@dataclass
class Variant:
    """One side of the comparison."""

    workload: Path
    env: dict[str, str]
    around: str | None = None


def variants(case: Case, change: dict[str, Any], folder: Path) -> tuple[Variant, Variant]:
    """The sample as it is, and as the change makes it."""
    raw = tomllib.loads((SAMPLES / f"{case.sample}.toml").read_text())
    own = raw.get("process", {}).get("env", {})
    ill, well = folder / f"{case.sample}-ill.toml", folder / f"{case.sample}-well.toml"
    ill.write_text(as_toml(raw))
    well.write_text(as_toml(changed(raw, change)))
    fixed_env: dict[str, str | None] = {**os.environ, **own, **change.get("env", {})}
    for name in change.get("folders", ()):
        fixed_env[name] = str(folder / name)
    kept = {name: value for name, value in fixed_env.items() if value is not None}
    return Variant(ill, {**os.environ, **own}, case.around), Variant(well, kept)


def speed(script: Path, variant: Variant, whole: bool) -> float:
    """Of a fresh process: samples per second, or runs per second."""
    start = time.perf_counter()
    with surroundings(variant.around) as prefix:
        answer = subprocess.run(
            [*prefix, sys.executable, script, variant.workload, "0" if whole else str(RUN_S)],
            env=variant.env,
            capture_output=True,
            text=True,
            check=True,
        )
    if whole:
        return 1 / (time.perf_counter() - start)
    return float(answer.stdout.split()[-1])


def truth(case: Case, change: dict[str, Any], rounds: int, folder: Path) -> dict[str, float]:
    """The ratio of fixed to unfixed, from fresh processes in turn."""
    script = folder / "train.py"
    script.write_text(TRAIN)
    ill, well = variants(case, change, folder)
    whole = change.get("speeds_up") == "launch"
    if whole:
        speed(script, well, whole)  # fills what is kept between launches
    ratios = []
    for _ in range(rounds):
        order = random.sample([ill, well], 2)
        rates = {variant.workload: speed(script, variant, whole) for variant in order}
        ratios.append(math.log(rates[well.workload] / rates[ill.workload]))
    found = {"ratio": fmean(ratios), "lowest": min(ratios), "highest": max(ratios)}
    return {name: math.exp(value) for name, value in found.items()}


def examine(case: Case, rounds: int, folder: Path, took_s: float | None) -> dict[str, Any]:
    """Rank, gain and truth of one case; `took_s`: what its check took, if that was made before."""
    start = time.perf_counter()
    report = check(case, again=took_s is not None)
    seconds = time.perf_counter() - start if took_s is None else took_s
    found = next((f for f in report["findings"] if f["check"] == case.check), None)
    seen: dict[str, Any] = {"check": case.check, "sample": case.sample, "seconds": seconds}
    seen["others"] = [f["check"] for f in report["findings"] if f["check"] != case.check]
    if found is None:
        outcome = next(c for c in report["checks"] if c["id"] == case.check)
        return {**seen, "rank": None, "outcome": outcome}
    change = found["fix"]["change"] or {}
    seen |= {"rank": found["rank"], "gain": found["gain"], "how": found["fix"]["how"]}
    if found["gain"] is not None and (change or case.around):
        seen["truth"] = truth(case, change, rounds, folder)
    return seen


def row(seen: dict[str, Any]) -> str:
    """One line of the table."""
    gain, real = seen.get("gain"), seen.get("truth")
    told = (
        f"{gain['speedup']:.2f}× ({gain['low']:.2f}–{gain['high']:.2f}) {gain['basis']}"
        if gain
        else "-"
    )
    found = f"{real['ratio']:.2f}× ({real['lowest']:.2f}–{real['highest']:.2f})" if real else "-"
    rank = seen["rank"] or "none"
    others = ", ".join(seen["others"])
    how = "".join(seen.get("how", "").splitlines()[:1])
    return (
        f"{seen['check']:<20} {seen['sample']:<17} {rank!s:<5} {told:<30} {found:<21} "
        f"{seen['seconds']:>4.0f} s  {how}"
        f"{'  also: ' + others if others else ''}"
    )


def main() -> None:
    """All cases, or those of the samples that are named."""
    options = [argument for argument in sys.argv[1:] if argument != "--truth"]
    rounds = int(options[0]) if options else 3
    chosen = [case for case in CASES if not options[1:] or case.name in options[1:]]
    kept = earlier()
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            took_s = kept[case.name]["seconds"] if "--truth" in sys.argv else None
            kept[case.name] = examine(case, rounds, Path(folder), took_s)
            save("catalogue", report_of(kept), kept)


def earlier() -> dict[str, Any]:
    """The results saved so far, by the name of the case: what is not examined again stays."""
    file = Path(__file__).parent / "results" / "catalogue.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def report_of(kept: dict[str, Any]) -> list[str]:
    """The table, in the order of the cases."""
    seen = [kept[case.name] for case in CASES if case.name in kept]
    first = sum(each["rank"] == 1 for each in seen)
    return [HEADING, *map(row, seen), "", f"rank 1: {first} of {len(seen)}; cudnn needs a GPU"]


if __name__ == "__main__":
    main()
