"""How far gains on replayed steps are from the truth, and what their intervals have to add.

python -m tests.benchmarks.known_gains

Nothing is run. known_gains.jsonl holds the replayed gains of the causes that were named first in
the ward (at 6dec781) and in eight rounds of fresh scripts, as they came out, each with its truth,
measured on the same machine: a copy of what tests/clinic/results had at 6dec781, ward.txt and the
rounds' JSON, for these are measured anew now and then. Their intervals are those of before UNLIKE
(perfdoctor/trials/statistics.py): they count the noise of slices and launches, and the error of the
whole emulated step.

UNLIKE is fitted to half of them, drawn by SEED: the least with which of gains within FAR of the
truth as many intervals hold it as an interval of 95 % should; those further off tell of another
fault, a fix that is not what the truth was measured with, say. The other half tells how good that
is, with all of its gains.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from perfdoctor.trials.statistics import UNLIKE, with_unlike
from tests.saved import save

KNOWN = Path(__file__).parent / "results" / "known_gains.jsonl"
SEED = 20261127
FAR, ENOUGH = 2.0, 0.95
"""The factor, and the share of intervals."""
WIDE = 3.0
"""The factor from its low to its high end from which on an interval says little."""
TRIED = [step / 20 for step in range(17)]


class Known(NamedTuple):
    """A gain whose truth is known."""

    source: str
    case: str
    gain: float
    low: float
    high: float
    truth: float

    @property
    def error(self) -> float:
        """Its logarithm over the truth's."""
        return math.log(self.gain / self.truth)

    def halves(self, at_most: float) -> tuple[float, float]:
        """By how far its interval reaches down and up then, as logarithms; see `with_unlike`."""
        down, up = math.log(self.gain / self.low), math.log(self.high / self.gain)
        return with_unlike(self.gain, down, up, at_most)

    def holds(self, at_most: float) -> bool:
        """Whether the truth is in it then."""
        down, up = self.halves(at_most)
        return -up <= self.error <= down

    def is_wide(self, at_most: float) -> bool:
        """Whether it says little then."""
        return sum(self.halves(at_most)) > math.log(WIDE)


def share(gains: Sequence[Known], at_most: float) -> float:
    """Of the intervals, those that hold the truth."""
    return sum(each.holds(at_most) for each in gains) / len(gains)


def near(gains: Sequence[Known]) -> list[Known]:
    """Those within FAR of the truth."""
    return [each for each in gains if abs(each.error) < math.log(FAR)]


def fitted(gains: Sequence[Known]) -> float:
    """The least that is enough."""
    return next(each for each in TRIED if share(near(gains), each) >= ENOUGH)


def main() -> None:
    """Fit, tell, and save."""
    replayed = [Known(**json.loads(line)) for line in KNOWN.read_text().splitlines()]
    mixed = Random(SEED).sample(replayed, len(replayed))
    one, other = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
    of_the_ward = [each for each in replayed if each.source == "ward"]
    lines = [
        f"{len(replayed)} replayed gains, off by {median(abs(e.error) for e in replayed):.0%} in "
        f"the median; {len(near(replayed))} within a factor of {FAR:g}",
        f"fitted to {len(near(one))} of {len(one)}: {fitted(one):g}; in use: {UNLIKE:g}",
        "",
        "         truth in the interval of",
        "unlike   near ones   other near ones   all others   the ward's   wider than a factor of 3",
    ]
    for each in TRIED:
        shares = [share(group, each) for group in (near(one), near(other), other, of_the_ward)]
        wide = sum(gain.is_wide(each) for gain in replayed)
        lines.append(
            f"{each:>6.2f}   {shares[0]:>9.0%}   {shares[1]:>15.0%}   {shares[2]:>10.0%}   "
            f"{shares[3]:>10.0%}   {wide:>6} of {len(replayed)}"
        )
    save("known_gains", lines, {"fitted": fitted(one), "in use": UNLIKE})


if __name__ == "__main__":
    main()
