"""What observing costs a user's script: windows and rests in turn, in one run of the script.

python -m tests.benchmarks.script_overhead [NAME …]

Healthy scripts of tests/clinic run under the agent that `perfdoctor check` puts into them; beside
it sits the counter of the trials. A window is traced, written and read exactly as `check` does it;
then the agent rests, as it does for most of a run. What a window costs is the time from its begin
until its trace is read, less what the calls made meanwhile take in the rests before and after it.
`check` needs one window; its share of a run of a minute is printed, with the interval over windows.

The resting agent itself is measured by tests/benchmarks/observer_overhead.
"""

import math
import os
import sys
import tempfile
import time
from bisect import bisect_left
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import psutil
from scipy.special import stdtrit

from perfdoctor.counters import EVERY, STEPS
from perfdoctor.injection import injected
from perfdoctor.observe.following import WINDOW_S
from perfdoctor.observe.reading import digested
from perfdoctor.processes import ProcessGroups
from perfdoctor.protocol import AGAIN, CLOSED, OPENED, RECORDED
from perfdoctor.trials.shared_counters import SharedCounters
from tests.clinic.patient import Patient, lay_out, patients
from tests.saved import save

READ_WITHIN_S = 600.0
NAMES = ("plain_mlp", "config_package", "pinn", "optax_cnn", "haiku_vae", "eqx_series")
WINDOWS, REST_S, START_S = 6, 6.0, 60.0
RUN_S = 60.0
"""Of which one window is a share."""
LIMIT_S = 60.0
"""Of one window."""


PHASES = ("traced", "written", "read")
"""From the begin of a window to its end, until its trace is written, until it is read."""


@dataclass(frozen=True)
class Cost:
    """Of one window of one script, in seconds."""

    took_s: tuple[float, ...]
    """In each of the PHASES."""
    lost_s: tuple[float, ...]
    """Of that, what no calls of the script were made for."""


def main() -> None:
    """The scripts that are named, or NAMES."""
    everyone = {each.name: each for each in patients()}
    phases = "".join(f"{each:>16}" for each in PHASES)
    lines = [f"{'script':<16} {'ms/step':>8} {phases}   loses of 60 s"]
    print(lines[0], flush=True)
    data = {}
    for name in sys.argv[1:] or NAMES:
        with tempfile.TemporaryDirectory() as folder, ProcessGroups() as groups:
            step_ms, costs = windows(everyone[name], Path(folder), groups)
        lines.append(line(name, step_ms, costs))
        print(lines[-1], flush=True)
        data[name] = {"step_ms": step_ms, "windows": [asdict(each) for each in costs]}
    save("script_overhead", lines, data, shown=False)


def line(name: str, step_ms: float | None, costs: list[Cost]) -> str:
    """A row of the table."""
    whole = [sum(each.lost_s) for each in costs]
    half = stdtrit(len(whole) - 1, 0.975) * stdev(whole) / math.sqrt(len(whole))
    step = f"{step_ms:.1f}" if step_ms else "-"
    columns = zip(
        zip(*(each.lost_s for each in costs), strict=True),
        zip(*(each.took_s for each in costs), strict=True),
        strict=True,
    )
    phases = "".join(f"{fmean(lost):>6.2f} of {fmean(took):>4.1f} s" for lost, took in columns)
    return f"{name:<16} {step:>8} {phases}   {fmean(whole) / RUN_S:.1%} ± {half / RUN_S:.1%}"


def windows(
    patient: Patient, folder: Path, groups: ProcessGroups
) -> tuple[float | None, list[Cost]]:
    """The step's time as the last window shows it, and what each window cost."""
    lay_out(patient, folder)
    notes = groups.folder()
    counters, _ = SharedCounters(notes / EVERY), SharedCounters(notes / STEPS)
    env = injected(
        {**os.environ, **patient.env},
        "tests.benchmarks.counted",
        folder=str(notes),
        steady_within_s=START_S,
        window_s=WINDOW_S,
    )
    command = [sys.executable, *patient.command, *patient.args]
    with (folder / "output.txt").open("wb") as output:
        child = groups.spawn(command, env=env, cwd=folder, stdout=output, stderr=output)
    spans = [window(child, notes, groups, number) for number in range(1, WINDOWS + 1)]
    time.sleep(REST_S)
    calls, oldest = counters.since(0), counters.since(0)[0]
    groups.end(child)
    digest_ms = step_time_ms(notes, groups)
    kept = [span for span in spans if span[0] - REST_S * 1e9 > oldest]
    return digest_ms, [cost(span, calls) for span in kept]


def window(child: psutil.Popen, notes: Path, groups: ProcessGroups, number: int) -> tuple[int, ...]:
    """When the n-th window began, and when each of its phases ended; it begins after a rest."""
    if number > 1:
        time.sleep(REST_S)
        (notes / AGAIN.format(number - 1)).write_text(f"{WINDOW_S}")
    instants = []
    for file in (OPENED, CLOSED, RECORDED):
        wait_for(notes / file.format(number), child)
        instants.append(time.monotonic_ns())
    digested(notes, groups, time.monotonic() + READ_WITHIN_S)
    return (*instants, time.monotonic_ns())


def wait_for(file: Path, child: psutil.Popen) -> None:
    """RuntimeError if it does not come."""
    until = time.monotonic() + LIMIT_S
    while not file.exists():
        if child.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"no {file.name}; the script's status: {child.poll()}")
        time.sleep(0.01)


def cost(instants: tuple[int, ...], calls: list[int]) -> Cost:
    """Of a window, by the calls in it and in the rests beside it; instants in nanoseconds."""
    begin, end = instants[0], instants[-1]
    rest = round(REST_S * 0.9 * 1e9)

    def made(since: int, until: int) -> int:
        return bisect_left(calls, until) - bisect_left(calls, since)

    rate = (made(begin - rest, begin) + made(end, end + rest)) / (2 * rest)
    phases = list(pairwise(instants))
    return Cost(
        took_s=tuple((until - since) / 1e9 for since, until in phases),
        lost_s=tuple((until - since - made(since, until) / rate) / 1e9 for since, until in phases),
    )


def step_time_ms(notes: Path, groups: ProcessGroups) -> float | None:
    """As the last trace tells it, which is slower than untraced."""
    found = digested(notes, groups, time.monotonic() + READ_WITHIN_S)
    return found.steps.time_ms if found and found.steps else None


if __name__ == "__main__":
    main()
