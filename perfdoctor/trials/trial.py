"""Tries fixes on a target: which one is best, and what it is worth."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from perfdoctor.schema.fix import Change, Fix, Gain, Speeds, Tried
from perfdoctor.trials.live import PlayerEnded
from perfdoctor.trials.statistics import LOOKS, clear, gain_of

PAIR_S = 14.0
"""What a pair takes: two launches, warm-up, slices. Measured on 2 cores: 8 to 16 s."""

Play = Callable[[Change, float], list[float]]
"""Measures a change until an instant of time.monotonic() at most: log ratios of throughput, or of
the time that runs take. Raises PlayerEnded, and ValidationError for a change that can't be made."""


@dataclass
class Trial:
    """A fix, and the pairs played with it so far."""

    fix: Fix
    pairs: list[list[float]] = field(default_factory=list)
    failure: str | None = None

    @property
    def gain(self) -> Gain | None:
        """None if it could not be run."""
        return gain_of(self.pairs) if self.pairs else None


@dataclass
class Laboratory:
    """Runs trials of one target within a deadline."""

    plays: Mapping[Speeds, Play]
    deadline: float
    """Instant of time.monotonic()."""
    min_gain: float
    say: Callable[[str], None]
    pair_s: float = PAIR_S
    """What to expect of a pair: the longest so far, where one took longer than most do."""

    def best_of(self, check: str, fixes: Sequence[Fix], ladder: bool) -> list[Tried]:
        """Tries the fixes that a machine can apply; the best one first, and measured well."""
        trials = self._each(fixes, ladder)
        best = max(trials, key=speedup, default=None)
        if best is None:
            return []
        self._confirm(best, among=len(trials))
        ordered = [best, *(trial for trial in trials if trial is not best)]
        return [record(check, trial) for trial in ordered]

    def together(self, change: Change) -> list[Tried]:
        """Tries all fixes at once."""
        fix = Fix(summary="all fixes together", how="all fixes together", change=change)
        return self.best_of("", [fix], ladder=False)

    def once_more(self, tried: Tried) -> Tried:
        """With a second pair, if there was one only and there is time: its launch may have been a
        lucky one. Where that pair can't be run, as it was.
        """
        change = tried.fix.change
        if change is None or len(tried.log_ratios) != 1 or not self._has_time():
            return tried
        trial = Trial(tried.fix, [list(pair) for pair in tried.log_ratios])
        self._play(trial)
        return record(tried.check, trial) if trial.failure is None else tried

    def _each(self, fixes: Sequence[Fix], ladder: bool) -> list[Trial]:
        """One pair for each fix; up a ladder for as long as the next rung is better."""
        trials: list[Trial] = []
        for fix in fixes:
            if fix.change is None or not self._has_time():
                continue
            below = max((speedup(trial) for trial in trials), default=0.0)
            trials.append(Trial(fix))
            self._play(trials[-1])
            if ladder and speedup(trials[-1]) < below * (1 + self.min_gain):
                break
        return trials

    def _confirm(self, best: Trial, among: int) -> None:
        """More pairs until the answer is clear; a choice among several flatters: one at least."""
        fewest = 1 if among == 1 else 2
        while best.gain and not best.failure and len(best.pairs) < LOOKS and self._has_time():
            if len(best.pairs) >= fewest and clear(best.gain, self.min_gain):
                break
            self._play(best)

    def _has_time(self) -> bool:
        return time.monotonic() + self.pair_s <= self.deadline

    def _play(self, trial: Trial) -> None:
        change = trial.fix.change
        assert change is not None
        self.say(f"trying {trial.fix.how.splitlines()[0]} (pair {len(trial.pairs) + 1})")
        start = time.monotonic()
        try:
            trial.pairs.append(self.plays[change.speeds_up](change, self.deadline))
        except (PlayerEnded, msgspec.ValidationError) as error:
            trial.failure = str(error)
        self.pair_s = max(self.pair_s, time.monotonic() - start)


def speedup(trial: Trial) -> float:
    """What a trial showed; 0 if it could not be run."""
    return trial.gain.speedup if trial.gain else 0.0


def record(check: str, trial: Trial) -> Tried:
    """As plain data, to be kept with the observation."""
    pairs = tuple(tuple(pair) for pair in trial.pairs)
    return Tried(check=check, fix=trial.fix, log_ratios=pairs, failure=trial.failure)
