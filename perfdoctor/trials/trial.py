"""Tries fixes on a workload: which one is best, and what it is worth."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.report import Change, Fix, Gain
from perfdoctor.trials.duet import play_pair
from perfdoctor.trials.player import PlayerEnded
from perfdoctor.trials.statistics import LOOKS, clear, gain_of

PAIR_S = 12.0
"""What a pair takes: two launches, warm-up, slices. Measured on 2 cores: 8 to 14 s."""

Launcher = Callable[[Change], Launch]
"""Makes the launch of the target with a change applied."""


@dataclass
class Trial:
    """What trying a fix showed."""

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

    ward: Ward
    launcher: Launcher
    deadline: float
    """Instant of time.monotonic()."""
    min_gain: float
    say: Callable[[str], None]

    def has_time(self) -> bool:
        """Whether another pair fits in."""
        return time.monotonic() + PAIR_S <= self.deadline

    def best_of(self, fixes: Sequence[Fix], ladder: bool) -> list[Trial]:
        """Trials of the fixes that a machine can apply, the best one first and measured well."""
        trials: list[Trial] = []
        best: Trial | None = None
        for fix in fixes:
            if fix.change is None or not self.has_time():
                continue
            trial = Trial(fix)
            self._play(trial)
            trials.append(trial)
            if ladder and best is not None and not better(trial, best, self.min_gain):
                break
            if best is None or better(trial, best, 0.0):
                best = trial
        if best is None:
            return trials
        looks = LOOKS if len(trials) == 1 else LOOKS + 1  # the choice among several flatters
        while best.gain and len(best.pairs) < looks and self.has_time():
            if clear(best.gain, self.min_gain) and (len(trials) == 1 or len(best.pairs) > 1):
                break
            self._play(best)
        return [best, *(trial for trial in trials if trial is not best)]

    def gain_of(self, change: Change) -> Gain | None:
        """The gain of one change; None if there is no time for it, or it can't be run."""
        together = Fix(summary="", how="all fixes together", change=change)
        trials = self.best_of([together], ladder=False)
        return trials[0].gain if trials else None

    def _play(self, trial: Trial) -> None:
        assert trial.fix.change is not None
        number = len(trial.pairs) + 1
        self.say(f"trying {trial.fix.how.splitlines()[0]} (pair {number})")
        try:
            unchanged, changed = self.launcher(Change()), self.launcher(trial.fix.change)
            trial.pairs.append(play_pair(self.ward, unchanged, changed, self.deadline))
        except PlayerEnded as ended:
            trial.failure = str(ended)
        except msgspec.ValidationError as error:
            trial.failure = str(error)


def better(trial: Trial, best: Trial, by: float) -> bool:
    """Whether a trial shows a gain that is larger than the best one's by the factor 1 + `by`."""
    if trial.gain is None:
        return False
    return best.gain is None or trial.gain.speedup > best.gain.speedup * (1 + by)
