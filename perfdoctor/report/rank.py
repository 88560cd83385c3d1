"""From outcomes and trials to verdicts, and their order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfdoctor.schema.fix import Fix, Gain, Tried
from perfdoctor.schema.report import Evidence, Finding, Kind, Outcome

Trials = Sequence[tuple[Tried, Gain | None]]
"""What was tried, the best first, each with the gain that it showed, if it could be run."""


@dataclass(frozen=True)
class Verdict:
    """What is said of one check in the end."""

    check: str
    kind: Kind
    summary: str
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    gain: Gain | None = None

    @property
    def measured(self) -> bool:
        """Whether its gain was measured."""
        return self.gain is not None and self.gain.basis == "measured"

    def finding(self, rank: int) -> Finding:
        """Its entry in the report."""
        fix = self.fix or Fix(summary="", how="")
        return Finding(
            check=self.check,
            rank=rank,
            summary=self.summary,
            evidence=self.evidence,
            fix=fix,
            gain=self.gain,
        )


def judge(check: str, outcome: Outcome, trials: Trials, min_gain: float) -> Verdict:
    """A measurement decides where there is one, the estimate where there is none.

    An issue without any gain stays one: nothing runs, so nothing could be measured.
    """
    if outcome.kind not in ("issue", "hint"):
        return Verdict(check, outcome.kind, outcome.summary, outcome.evidence)
    fix = outcome.fixes[0] if outcome.fixes else None
    gain, kind, summary = outcome.gain, outcome.kind, with_failures(outcome.summary, trials)
    if trials and trials[0][1] is not None:
        fix, gain = trials[0][0].fix, trials[0][1]
        kind = "issue" if worth(gain, min_gain) else "hint"
        if kind == "hint":
            summary += f"; tried {fix.how}: no reliable gain ({interval(gain)})"
    elif kind == "issue" and gain is not None and not worth(gain, min_gain):
        kind = "hint"
    return Verdict(check, kind, summary, outcome.evidence, fix, gain)


def worth(gain: Gain, min_gain: float) -> bool:
    """Whether a gain is both reliable and large enough to report; `min_gain` 0.05 is 5 %."""
    return gain.low > 1 and gain.speedup >= 1 + min_gain


def interval(gain: Gain) -> str:
    """1.23× (1.20–1.26)."""
    return f"{gain.speedup:.2f}× ({gain.low:.2f}–{gain.high:.2f})"


def with_failures(summary: str, trials: Trials) -> str:
    """The summary, and which fixes could not be run."""
    failures = [f"{each.fix.how} failed: {each.failure}" for each, _ in trials if each.failure]
    return "; ".join([summary, *failures])


def ranked(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The issues: first what keeps the run from running, then by the gain's lower bound."""
    issues = [verdict for verdict in verdicts if verdict.kind == "issue"]
    return sorted(issues, key=lambda v: -v.gain.low if v.gain else float("-inf"))
