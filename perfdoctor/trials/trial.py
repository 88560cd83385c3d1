"""Tries fixes on a target: which one is best, and what it is worth."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from perfdoctor.schema.fix import Change, Fix, Gain, Tried
from perfdoctor.trials.change import go_together, merged
from perfdoctor.trials.live import OutOfTime, WorkerEnded
from perfdoctor.trials.statistics import LOOKS, between_both, clear, gain_of, last_look
from perfdoctor.trials.way import Way


@dataclass(frozen=True)
class Wish:
    """The fixes of one check, of which the best one is to be found."""

    check: str
    fixes: Sequence[Fix]
    sweep: bool
    """Whether they are steps of one ladder, which is left where the next one gains nothing."""


@dataclass
class Trial:
    """A fix, and the pairs played with it so far."""

    fix: Fix
    way: Way
    pairs: list[list[float]] = field(default_factory=list)
    pairs_at_most: list[list[float]] = field(default_factory=list)
    """Without what it may not need; see `Way`."""
    failure: str | None = None

    @property
    def gain(self) -> Gain | None:
        """None if it could not be run."""
        return measured(record("", self))


@dataclass
class Laboratory:
    """Runs trials of one target within a deadline."""

    ways: Sequence[Way]
    """The first of them that can make a change measures it."""
    deadline: float
    """Instant of time.monotonic()."""
    min_gain: float
    say: Callable[[str], None]
    longest_s: dict[str, float] = field(default_factory=dict)
    """The longest pair so far, by its basis."""

    def best_of(self, check: str, fixes: Sequence[Fix], sweep: bool) -> list[Tried]:
        """Tries the fixes of one check; see `best_of_each`."""
        return self.best_of_each([Wish(check, fixes, sweep)])

    def best_of_each(self, wishes: Sequence[Wish]) -> list[Tried]:
        """Tries the fixes that a machine can apply; of each wish the best one first, and measured
        well.

        All wishes get their first pair before one gets its second, and what gains the most is
        measured well before the rest: where the time does not suffice, it is not spent on what
        gains nothing. What is still unclear after its second pair comes after all others.
        """
        looks = [(wish, list[Trial]()) for wish in wishes]
        open_ones = [self._each(wish, trials) for wish, trials in looks]
        while open_ones:
            open_ones = [each for each in open_ones if next(each, None)]
        chosen = [(wish, trials, self._best(wish, trials)) for wish, trials in looks if trials]
        by_gain = sorted(chosen, key=lambda each: speedup(each[2]), reverse=True)
        for _, trials, best in by_gain:
            self._confirm(best, among=len(trials))
        for _, _, best in by_gain:
            self._settle(best)
        ordered = [(wish, self._sure_first(trials, best)) for wish, trials, best in chosen]
        return [record(wish.check, trial) for wish, trials in ordered for trial in trials]

    def _best(self, wish: Wish, trials: Sequence[Trial]) -> Trial:
        """The one that gains the most, of those that are worth it; in a sweep the first of them
        that is nearly as good.
        """
        worth_it = [t for t in trials if self._may_do(t)]
        choice = worth_it or trials
        best = max(choice, key=speedup)
        if not wish.sweep:
            return best
        return next(t for t in choice if speedup(t) * (1 + self.min_gain) >= speedup(best))

    def _sure_first(self, trials: Sequence[Trial], best: Trial) -> list[Trial]:
        """The best one first; where it is not surely worth what it takes, one that takes less and
        is.
        """
        easier = [t for t in trials if self._least(t) < self._least(best) and self._may_do(t)]
        for trial in easier if not self._is_worth(best) else []:
            self._confirm(trial, among=len(trials))
            self._settle(trial)
            if self._is_worth(trial):
                best = trial
                break
        return [best, *(each for each in trials if each is not best)]

    def together(self, change: Change) -> list[Tried]:
        """Tries all fixes at once, if one way can make all of them."""
        fix = Fix(summary="all fixes together", how="all fixes together", change=change)
        return self.best_of("", [fix], sweep=False)

    def can_go_on(self, ladder: Sequence[tuple[str, Fix]]) -> bool:
        """Whether the last fix can be made on top of the others."""
        changes = [fix.change for _, fix in ladder if fix.change is not None]
        way = self._way(changes[-1]) if len(changes) == len(ladder) else None
        return way is not None and way.after is not None and go_together(changes)

    def on_top(self, base: Sequence[tuple[str, Fix]], other: tuple[str, Fix]) -> Tried | None:
        """What a fix gains where those of `base` are made; None if there is no time for it."""
        check, fix = other
        way = self._way(fix.change) if fix.change is not None else None
        if way is None or way.after is None or not self._has_time(way):
            return None
        changes = [each.change for _, each in base if each.change is not None]
        trial = Trial(fix, replace(way, play=way.after(merged(changes))))
        self._play(trial)
        self._confirm(trial, among=1)
        self._settle(trial)
        before = tuple(name for name, _ in base)
        return msgspec.structs.replace(record(check, trial), after=before)

    def may_be_worth(self, tried: Tried) -> bool:
        """Whether it was not seen to be worth too little."""
        gain = measured(tried)
        return gain is None or tried.fix.is_worth(gain, self.min_gain)

    def once_more(self, tried: Tried) -> Tried:
        """The trial with a second pair, if there was one only and there is time: its launch may
        have been a lucky one. Where that pair can't be run, the trial as it was.
        """
        change = tried.fix.change
        way = self._way(change) if change is not None and len(tried.log_ratios) == 1 else None
        if way is None or way.basis != "measured" or not self._has_time(way):
            return tried  # a replayed step has no launch of the program
        pairs, at_most = (
            list(map(list, each)) for each in (tried.log_ratios, tried.log_ratios_at_most)
        )
        trial = Trial(tried.fix, way, pairs, at_most)
        self._play(trial)
        return record(tried.check, trial) if trial.failure is None else tried

    def can(self, fix: Fix) -> bool:
        """Whether there is a way to measure it."""
        return fix.change is not None and self._way(fix.change) is not None

    def _way(self, change: Change) -> Way | None:
        return next((way for way in self.ways if way.can(change)), None)

    def _instead(self, trial: Trial, change: Change) -> Way | None:
        """The next way to measure a change that could not be made in the first one."""
        ways = list(self.ways)
        if trial.pairs or not trial.way.gives_way or trial.way not in ways:
            return None
        later = ways[ways.index(trial.way) + 1 :]
        return next((way for way in later if way.can(change) and self._has_time(way)), None)

    def _each(self, wish: Wish, trials: list[Trial]) -> Iterator[Trial]:
        """One pair for each fix, noted in `trials` as well; along a sweep for as long as the next
        one is better.
        """
        for fix in wish.fixes:
            way = self._way(fix.change) if fix.change is not None else None
            if way is None or not self._has_time(way):
                continue
            below = max((speedup(trial) for trial in trials), default=0.0)
            trials.append(Trial(fix, way))
            self._play(trials[-1])
            yield trials[-1]
            enough = below * (1 + self.min_gain)
            if fix.changes_results == "training":  # the first one has to be worth it too
                enough = max(enough, 1 + fix.least_gain(self.min_gain))
            if wish.sweep and speedup(trials[-1]) < enough:
                return

    def _confirm(self, best: Trial, among: int) -> None:
        """A second pair, unless the first one was clear; a choice among several flatters."""
        fewest = 1 if among == 1 or best.way.basis != "measured" else 2
        is_unclear = not self._is_clear(best) or len(best.pairs) < fewest
        self._play_until(best, LOOKS - 1 if is_unclear else 1)

    def _settle(self, best: Trial) -> None:
        """As many more pairs as make the answer clear, if it is not, and they may."""
        if len(best.pairs) == LOOKS - 1 and not self._is_clear(best):
            way = best.way
            pairs = last_look(best.pairs, self._least(best), way.basis, way.emulation_error)
            self._play_until(best, pairs)
        self._look_at_most(best)

    def _least(self, trial: Trial) -> float:
        return trial.fix.least_gain(self.min_gain)

    def _may_do(self, trial: Trial) -> bool:
        return speedup(trial) >= 1 + self._least(trial)

    def _is_worth(self, trial: Trial) -> bool:
        return trial.gain is not None and trial.fix.is_worth(trial.gain, self.min_gain)

    def _is_clear(self, trial: Trial) -> bool:
        return trial.gain is not None and clear(trial.gain, self._least(trial))

    def _play_until(self, trial: Trial, pairs: int) -> None:
        """Play until there are so many pairs, as long as they can be, and there is time."""
        while 0 < len(trial.pairs) < pairs and not trial.failure and self._has_time(trial.way):
            self._play(trial)

    def _look_at_most(self, best: Trial) -> None:
        """A pair without what the change may not need."""
        change = best.way.at_most(best.fix.change) if best.fix.change is not None else None
        if change is None or not best.pairs or best.failure or not self._has_time(best.way):
            return
        self.say(f"trying {best.fix.how.splitlines()[0]} (at most)")
        with suppress(WorkerEnded):
            best.pairs_at_most.append(best.way.play(change, self.deadline))

    def _has_time(self, way: Way) -> bool:
        expected_s = max(way.pair_s, self.longest_s.get(way.basis, 0.0))
        return time.monotonic() + expected_s <= self.deadline

    def _play(self, trial: Trial) -> None:
        change = trial.fix.change
        assert change is not None
        self.say(f"trying {trial.fix.how.splitlines()[0]} (pair {len(trial.pairs) + 1})")
        start = time.monotonic()
        if trial.pairs and trial.way.renew is not None:
            trial.way.renew()
        try:
            trial.pairs.append(trial.way.play(change, self.deadline))
        except (WorkerEnded, msgspec.ValidationError) as error:
            trial.failure = str(error)
            further = self._instead(trial, change) if not isinstance(error, OutOfTime) else None
            if further is not None:
                trial.way, trial.failure = further, None
                self._play(trial)
                return
        took_s = time.monotonic() - start
        basis = trial.way.basis
        self.longest_s[basis] = max(took_s, self.longest_s.get(basis, 0.0))


def speedup(trial: Trial) -> float:
    """What a trial showed; 0 if it could not be run."""
    return trial.gain.speedup if trial.gain else 0.0


def measured(tried: Tried) -> Gain | None:
    """The gain that a trial showed; None if it could not be run."""
    pairs, at_most = (
        [pair for pair in each if pair] for each in (tried.log_ratios, tried.log_ratios_at_most)
    )
    if not pairs:
        return None
    gain = gain_of(pairs, tried.basis, tried.emulation_error)
    if not at_most:
        return gain
    return between_both(gain, gain_of(at_most, tried.basis, tried.emulation_error))


def record(check: str, trial: Trial) -> Tried:
    """The trial as plain data, to be kept with the observation."""
    return Tried(
        check=check,
        fix=trial.fix,
        log_ratios=tuple(map(tuple, trial.pairs)),
        log_ratios_at_most=tuple(map(tuple, trial.pairs_at_most)),
        failure=trial.failure,
        basis=trial.way.basis,
        emulation_error=trial.way.emulation_error,
    )
