"""How often the interval of a gain holds the truth, and what it assumes of launches.

python -m tests.benchmarks.interval_coverage

Nothing is run: the prior of the variance between launches (LAUNCH_SD and LAUNCH_DF in
perfdoctor/trials/statistics.py) is fitted to what other benchmarks have saved, and trials are
simulated that stop as real ones do.

The prior is a scaled inverse chi-squared distribution: each program has a variance of its own. It
is fitted by maximum marginal likelihood to pairs of a program with itself on both cores
(launch_noise.json, gate_accuracy.jsonl), and to the errors of the gains in the clinic's catalogue,
each of which was measured a second time by fresh processes that share no code with the trials.
"""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from perfdoctor.schema.fix import MIN_GAIN
from perfdoctor.targets.resolve import read_observation
from perfdoctor.trials.statistics import (
    LAUNCH_DF,
    LAUNCH_SD,
    LOOKS,
    clear,
    gain_of,
    last_look,
    trimmed_mean,
)
from perfdoctor.trials.trial import measured
from tests.saved import save

RESULTS = Path(__file__).parent / "results"
OBSERVATIONS = Path(__file__).parents[1] / "observations"
CATALOGUE = Path(__file__).parents[1] / "clinic" / "results" / "catalogue.json"
GATE_SLICE_SD = 0.006
"""Of a launch's step time in a pair of the gate, by its slices: 0.4 to 0.8 %."""
OLD_LAUNCH_SD, OLD_QUANTILE = 0.03, 2.394
"""With which the catalogue's intervals were made: what remains of them is the noise of slices."""
T_95 = 2.9
"""From half an interval to a standard error: Student's t with 5 to 9 degrees of freedom."""
SDS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1)
SLICE_SDS = (0.01, 0.05)
SLICES = 8
TRUTHS = (0.0, 0.06, 0.5)
TRIALS = 1500
GRID = np.exp(np.linspace(math.log(1e-3), 0.0, 200))
"""Standard deviations, for integrals over the prior."""

Group = tuple[list[float], list[float]]
"""Deviations from the truth that one program's launches explain, and what else adds to the variance
of each."""


def same_on_both_cores() -> list[Group]:
    """Pairs of programs with themselves, on a machine whose cores are all theirs or shared."""
    noise = json.loads((RESULTS / "launch_noise.json").read_text())
    groups = []
    for pairs in noise.values():
        estimates = [trimmed_mean(pair) for pair in pairs["pairs"]]
        groups.append(([m for m, _, _ in estimates], [error**2 for _, error, _ in estimates]))
    cases = {
        each["name"]: each for each in json.loads((RESULTS / "gate_accuracy.json").read_text())
    }
    controls: defaultdict[str, list[float]] = defaultdict(list)
    for line in (RESULTS / "gate_accuracy.jsonl").read_text().splitlines():
        found = json.loads(line)
        case = cases[found["case"]]
        if found["cores"] > 1:
            program = f"{found['cpu']} {case['base']} {case['load']}"
            controls[program] += [each["controls"]["step_time"] for each in found["pairs"]]
    slices = 2 * GATE_SLICE_SD**2
    return groups + [(values, [slices] * len(values)) for values in controls.values()]


def errors_of_gains() -> list[Group]:
    """Of each measured gain in the catalogue: its logarithm less that of the truth."""
    groups = []
    for row in json.loads(CATALOGUE.read_text()).values():
        gain, truth = row.get("gain"), row.get("truth")
        if gain and truth and gain["basis"] == "measured":
            half = math.log(gain["high"] / gain["low"]) / 2
            slices = max(0.0, half**2 - (OLD_QUANTILE * OLD_LAUNCH_SD) ** 2) / T_95**2
            of_the_truth = (math.log(truth["highest"] / truth["lowest"]) / 2) ** 2
            error = math.log(gain["speedup"] / truth["ratio"])
            groups.append(([error], [slices + of_the_truth]))
    return groups


def held_in_the_catalogue() -> tuple[int, int]:
    """In how many rows of the catalogue the truth (the mean of fresh runs) lies in the interval
    that is told today of the same pairs, kept in tests/observations; and how many rows there are.
    """
    held = rows = 0
    for row in json.loads(CATALOGUE.read_text()).values():
        file = OBSERVATIONS / f"{row['sample']}.json"
        if not (row.get("gain") and row["gain"]["basis"] == "measured" and file.exists()):
            continue
        tried = read_observation(file).tried
        gains = [measured(each) for each in tried if each.check == row["check"] and each.log_ratios]
        same = [g for g in gains if g and math.isclose(g.speedup, row["gain"]["speedup"])]
        rows += len(same)
        held += sum(gain.low <= row["truth"]["ratio"] <= gain.high for gain in same)
    return held, rows


def prior(sd: float, df: float) -> Any:
    """Log probabilities of the standard deviations in GRID."""
    scaled = df * sd**2 / GRID**2
    logs = chi2.logpdf(scaled, df) + np.log(2 * scaled)
    return logs - np.logaddexp.reduce(logs)


def likelihood(groups: Sequence[Group], sd: float, df: float) -> float:
    """Marginal log likelihood of the prior."""
    weights = prior(sd, df)
    total = 0.0
    for values, others in groups:
        variance = GRID[None] ** 2 + np.array(others)[:, None]
        logs = -0.5 * (np.log(variance) + np.array(values)[:, None] ** 2 / variance)
        total += float(np.logaddexp.reduce(logs.sum(0) + weights))
    return total


def fitted(groups: Sequence[Group]) -> tuple[float, float, float]:
    """The likelihood of the best prior, its standard deviation, its degrees of freedom."""
    choices = product(np.arange(0.005, 0.1, 0.0025), (0.5, 1, 1.5, 2, 3, 4, 6, 10, 30))
    return max((likelihood(groups, sd, df), float(sd), float(df)) for sd, df in choices)


def covered(random: np.random.Generator, sds: Sequence[float], slice_sd: float) -> float:
    """The share of trials whose interval holds the truth; each launches with one of the `sds`."""
    hits = 0
    for number, sd in enumerate(sds):
        truth = TRUTHS[number % len(TRUTHS)]
        seen = pairs_of_a_trial(random, truth, sd, slice_sd)
        gain = gain_of(seen)
        hits += gain.low <= math.exp(truth) <= gain.high
    return hits / len(sds)


def pairs_of_a_trial(
    random: np.random.Generator, truth: float, launch_sd: float, slice_sd: float
) -> list[list[float]]:
    """The pairs of a trial that stops as a real one does; see `Laboratory.best_of_each`."""
    seen: list[list[float]] = []

    def play() -> None:
        launch = truth + random.normal(0, launch_sd)
        seen.append(random.normal(launch, slice_sd, size=SLICES).tolist())

    play()
    while len(seen) < LOOKS - 1 and not clear(gain_of(seen), MIN_GAIN):
        play()
    if not clear(gain_of(seen), MIN_GAIN):
        for _ in range(last_look(seen, MIN_GAIN) - len(seen)):
            play()
    return seen


def drawn(random: np.random.Generator, count: int) -> list[float]:
    """Standard deviations of so many programs, of the prior in use."""
    return [LAUNCH_SD * math.sqrt(LAUNCH_DF / x) for x in random.chisquare(LAUNCH_DF, count)]


def main() -> None:
    """Fit, simulate, and save both."""
    random = np.random.default_rng(20261125)
    groups = same_on_both_cores() + errors_of_gains()
    best, sd, df = fitted(groups)
    inside = likelihood(groups, LAUNCH_SD, LAUNCH_DF)
    lines = [
        f"{len(groups)} programs and gains; best prior: sd {sd:.2%}, {df:g} degrees of freedom",
        f"in use: sd {LAUNCH_SD:.2%}, {LAUNCH_DF:g}; log likelihood {best - inside:.1f} less",
        "",
        "launches differ by     intervals that hold the truth, of 95 %; slices scatter by",
        f"(standard deviation)   {'  '.join(f'{each:>6.0%}' for each in SLICE_SDS)}",
    ]
    data: dict[str, Any] = {"fitted": {"sd": sd, "df": df}, "covered": {}}
    for name, sds in [(f"{each:.0%}", [each] * TRIALS) for each in SDS] + [
        ("as in the prior", drawn(random, TRIALS))
    ]:
        shares = [covered(random, sds, each) for each in SLICE_SDS]
        data["covered"][name] = shares
        lines.append(f"{name:<21}  {'  '.join(f'{each:>6.1%}' for each in shares)}")
    held, rows = held_in_the_catalogue()
    data["catalogue"] = {"held": held, "rows": rows}
    lines += [
        "",
        f"the clinic's catalogue, same pairs: the truth in {held} of {rows} intervals",
    ]
    save("interval_coverage", lines, data)


if __name__ == "__main__":
    main()
