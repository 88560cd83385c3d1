"""How much two identical live processes differ: the noise between launches.

python -m tests.benchmarks.launch_noise [PAIRS]

No number of slices averages it out. Plays pairs of the same launch (A/A). Their estimates scatter
by the launch's own noise and a little by that of the slices; `LAUNCH_SD` in
perfdoctor/trials/statistics.py stands for the former.
"""

import math
import sys
import time
from pathlib import Path
from statistics import stdev
from types import SimpleNamespace

from perfdoctor.processes import ProcessGroups
from perfdoctor.runner import workload_runner
from perfdoctor.schema.fix import MIN_GAIN, Change
from perfdoctor.schema.observation import Observation
from perfdoctor.targets.resolve import resolve
from perfdoctor.trials.statistics import LAUNCH_SD, gain_of, trimmed_mean
from tests.saved import save

SAMPLES = Path("sample_configs")
WORKLOADS = ("healthy", "tiny_batch", "slow_etl", "gc_pressure")


def main() -> None:
    """Play the pairs, and print their scatter."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    lines = [
        "workload         pairs  sd of pairs  of their slices  of launches  |log ratio| at most"
    ]
    data, alarms, every = {}, 0, []
    for name in WORKLOADS:
        pairs = play(name, count)
        estimates = [trimmed_mean(pair) for pair in pairs]
        scatter = stdev(mean for mean, _, _ in estimates)
        slices = math.sqrt(sum(error**2 for _, error, _ in estimates) / count)
        launches = math.sqrt(max(0.0, scatter**2 - slices**2))
        every += [mean for mean, _, _ in estimates]
        gains = [gain_of([pair]) for pair in pairs]
        alarms += sum(gain.low > 1 and gain.speedup >= 1 + MIN_GAIN for gain in gains)
        highest = max(abs(mean) for mean, _, _ in estimates)
        lines.append(
            f"{name:<15}  {count:5d}  {scatter:10.1%}   {slices:14.1%}   {launches:10.1%}   "
            f"{highest:8.1%}"
        )
        data[name] = {"pairs": pairs, "sd_launches": launches}
    lines += [
        "",
        f"LAUNCH_SD is {LAUNCH_SD:.1%}; all pairs: sd {stdev(every):.1%}",
        f"single pairs that would have been called a gain: {alarms} of {len(every)}",
    ]
    save("launch_noise", lines, data)


def play(name: str, count: int) -> list[list[float]]:
    """Pairs of one workload with itself."""
    target = resolve(str(SAMPLES / f"{name}.toml"))
    assert not isinstance(target, Observation)
    with ProcessGroups() as groups:
        seen = SimpleNamespace(set_in_code=())
        way, *_ = workload_runner(target, groups, lambda text: None).ways(seen)  # type: ignore[arg-type]
        return [way.play(Change(), time.monotonic() + 120) for _ in range(count)]


if __name__ == "__main__":
    main()
