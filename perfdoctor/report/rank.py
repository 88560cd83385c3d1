"""From outcomes and trials to verdicts, and their order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfdoctor.schema.fix import LEAST_FOR_WORK, Fix, Gain, Tried
from perfdoctor.schema.report import Evidence, Finding, Kind, Outcome

Trials = Sequence[tuple[Tried, Gain | None]]
"""What was tried, the best first, each with the gain that it showed, if it could be run."""

CONSEQUENCES = {
    "compile-cache": ("recompilation", "missing-jit", "debug-flags"),
    "recompilation": ("debug-flags",),
}
"""By check, others whose finding explains its own: a program that is compiled in each step, or
operation by operation, compiles long; and of single operations some compile again and again."""


@dataclass(frozen=True)
class Verdict:
    """What is said of one check in the end."""

    check: str
    kind: Kind
    summary: str
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    gain: Gain | None = None
    remaining: Gain | None = None
    """What its fix gains on top of those of the checks `after`, where that was measured."""
    after: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether its gain was measured, on the target or on its captured step."""
        return self.gain is not None and self.gain.basis != "estimated"

    @property
    def is_of_launch(self) -> bool:
        """Whether its fix makes a launch quicker, and no step."""
        change = self.fix.change if self.fix else None
        return change is not None and change.speeds_up == "launch"

    @property
    def changes_training(self) -> bool:
        """Whether its fix changes what is trained."""
        return self.fix is not None and self.fix.changes_results == "training"

    def finding(self, rank: int, documentation: str = "") -> Finding:
        """Its entry in the report, with the check's own documentation."""
        fix = self.fix or Fix(summary="", how="")
        return Finding(
            check=self.check,
            rank=rank,
            summary=self.summary,
            evidence=self.evidence,
            fix=fix,
            gain=self.gain,
            remaining_gain=self.remaining,
            documentation=documentation,
        )


def judge(check: str, outcome: Outcome, trials: Trials, min_gain: float) -> Verdict:
    """A measurement decides where there is one, the estimate where there is none.

    An issue without any gain stays one: nothing runs, so nothing could be measured. One whose fix
    gains nothing on top of those of others has the same cause as they; what was tried last on top
    of others decides.
    """
    after = next(((tried, gain) for tried, gain in reversed(trials) if tried.after), None)
    trials = [each for each in trials if not each[0].after and decides(*each, min_gain)]
    if outcome.kind not in ("issue", "hint"):
        return Verdict(check, outcome.kind, outcome.summary, outcome.evidence)
    fix = outcome.fixes[0] if outcome.fixes else None
    gain, kind, summary = outcome.gain, outcome.kind, with_failures(outcome.summary, trials)
    if trials and trials[0][1] is not None:
        fix, gain = trials[0][0].fix, trials[0][1]
        kind = "issue" if fix.is_worth(gain, min_gain) else "hint"
        if kind == "hint":
            summary += f"; tried {fix.how}: no reliable gain ({interval(gain)})"
    elif kind == "issue" and gain is not None and not gain.is_worth(min_gain):
        kind = "hint"
    verdict = Verdict(check, kind, summary, outcome.evidence, fix, gain)
    tried, remaining = after or (None, None)
    return (
        with_remainder(verdict, tried.after, remaining, min_gain)
        if tried and remaining
        else verdict
    )


def decides(tried: Tried, gain: Gain | None, min_gain: float) -> bool:
    """Whether a trial has a say: one that is only an estimate confirms, and does not refute."""
    confirms = gain is not None and tried.fix.is_worth(gain, min_gain)
    return tried.basis != "estimated" or confirms


def with_remainder(
    verdict: Verdict, after: Sequence[str], remaining: Gain, min_gain: float
) -> Verdict:
    """What a fix gains on top of those of the checks `after`; without, the cause is the same."""
    if verdict.kind != "issue" or verdict.fix is None or verdict.fix.is_worth(remaining, min_gain):
        return replace(verdict, remaining=remaining, after=tuple(after))
    much = "too little" if remaining.is_worth(min_gain) else "no more"
    why = f"after the fix of {' and '.join(after)} it gains {much} ({interval(remaining)})"
    return replace(verdict, kind="hint", summary=f"{verdict.summary}; {why}", remaining=remaining)


def interval(gain: Gain) -> str:
    """1.23× (1.20–1.26)."""
    return f"{gain.speedup:.2f}× ({gain.low:.2f}–{gain.high:.2f})"


def with_failures(summary: str, trials: Trials) -> str:
    """The summary, and which fixes could not be run."""
    failures = [f"{each.fix.how} failed: {each.failure}" for each, _ in trials if each.failure]
    return "; ".join([summary, *failures])


def ranked(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The issues: first what keeps the run from running, then by the gain's lower bound; what makes
    a launch quicker, and no step, comes after all others.
    """
    issues = [verdict for verdict in verdicts if verdict.kind == "issue"]

    def place(verdict: Verdict) -> tuple[bool, float]:
        return verdict.is_of_launch, -verdict.gain.low if verdict.gain else float("-inf")

    return sorted(issues, key=place)


def told_once(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts without the findings that are a consequence of another one."""
    verdicts = list(verdicts)
    found = {verdict.check for verdict in verdicts if verdict.kind == "issue"}

    def told(verdict: Verdict) -> Verdict:
        causes = [cause for cause in CONSEQUENCES.get(verdict.check, ()) if cause in found]
        if not causes or verdict.kind not in ("issue", "hint"):
            return verdict
        summary = f"{verdict.summary}; a consequence of {causes[0]}"
        return replace(verdict, kind="ok", summary=summary, fix=None, gain=None)

    return [told(verdict) for verdict in verdicts]


def given_once(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts; a fix that changes the training, and would be ranked before others that do not,
    gains what remains after these: a step's time is given once, and first to them.
    """
    verdicts = list(verdicts)
    lows = {
        verdict.check: verdict.gain.low
        for verdict in verdicts
        if verdict.kind == "issue" and verdict.gain is not None and not verdict.changes_training
    }

    def told(verdict: Verdict) -> Verdict:
        gain, remaining = verdict.gain, verdict.remaining
        if not verdict.changes_training or gain is None or remaining is None:
            return verdict
        first = [check for check in verdict.after if lows.get(check, gain.low) < gain.low]
        if not first:
            return verdict
        summary = f"{verdict.summary}; its gain is on top of the fix of {' and '.join(first)}"
        return replace(verdict, gain=remaining, summary=summary)

    return [told(verdict) for verdict in verdicts]


def proved(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts without findings whose fix changes the training, if another one's fix may spare
    the same loss, and what is gained on top of that was not measured.

    What was replayed has to be sure even beside an estimate, and an estimate beside what was
    measured. On the program itself no fix is measured on top of others, so nothing is asked of it.
    """
    verdicts = list(verdicts)
    others = [
        verdict
        for verdict in verdicts
        if verdict.kind == "issue" and not verdict.changes_training and not verdict.is_of_launch
    ]

    def told(verdict: Verdict) -> Verdict:
        gain = verdict.gain
        if verdict.kind != "issue" or not verdict.changes_training or gain is None:
            return verdict
        if gain.basis == "measured" or verdict.remaining is not None:
            return verdict
        for other in others:
            if not verdict.measured and not other.measured:
                continue
            if other.gain is not None and gain.low < (1 + LEAST_FOR_WORK) * other.gain.high:
                why = f"the fix of {other.check} may spare the same: what is gained after it"
                summary = f"{verdict.summary}; {why} was not measured"
                return replace(verdict, kind="hint", summary=summary)
        return verdict

    return [told(verdict) for verdict in verdicts]
