"""How far estimates of the host's work are from the truth, by the timeline and with the step alone.

python -m tests.benchmarks.host_estimates

Nothing is run. host_estimates.jsonl holds the gains of loading, waiting, collecting and copying
that were named in thirteen rounds of fresh scripts and only estimated, though the step could be
replayed: as they came out, each with its truth and with what its step took in the run, alone and
emulated. Nothing is fitted.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from msgspec.structs import replace

from perfdoctor.answers import estimated, of_host_work
from perfdoctor.schema.calls import Alone
from perfdoctor.schema.fix import Gain
from tests.benchmarks.known_gains import WIDE
from tests.recorded import recorded
from tests.saved import save

KNOWN = Path(__file__).parent / "results" / "host_estimates.jsonl"


class Known(NamedTuple):
    """An estimate whose truth is known."""

    source: str
    case: str
    gain: float
    low: float
    high: float
    truth: float
    observed_ms: float
    alone_ms: float
    emulated_ms: float

    @property
    def by_timeline(self) -> Gain:
        """As it came out."""
        return estimated(self.gain, self.low, self.high)

    @property
    def with_alone(self) -> Gain:
        """As it is told now."""
        alone = Alone(
            alone_ms=self.alone_ms, emulated_ms=self.emulated_ms, observed_ms=self.observed_ms
        )
        return of_host_work(replace(recorded("healthy"), alone=alone, eager=None), self.by_timeline)


def told(name: str, gains: Sequence[tuple[Gain, float]]) -> str:
    """A line of the table; each gain with its truth."""
    errors = [abs(math.log(gain.speedup / truth)) for gain, truth in gains]
    held = [gain for gain, truth in gains if gain.low <= truth <= gain.high]
    narrow = sum(gain.high / gain.low <= WIDE for gain in held)
    off = f"{math.expm1(median(errors)):>6.0%}   {math.expm1(mean(errors)):>4.0%}"
    return f"{name:<20}   {off}   {len(held):>8}   {narrow:>26}"


def main() -> None:
    """Compare, tell, and save."""
    known = [Known(**json.loads(line)) for line in KNOWN.read_text().splitlines()]
    lines = [
        f"{len(known)} estimated gains of loading, waiting, collecting and copying",
        "",
        "                       off by, median and mean   truth in the interval",
        f"{'':<20}   {'median':>6}   mean   in all   in one no wider than 3x",
        told("by the timeline", [(each.by_timeline, each.truth) for each in known]),
        told("with the step alone", [(each.with_alone, each.truth) for each in known]),
    ]
    save("host_estimates", lines, {each.case: each.with_alone.speedup for each in known})


if __name__ == "__main__":
    main()
