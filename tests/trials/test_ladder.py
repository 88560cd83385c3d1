"""Fixes on top of each other."""

import math
import time
from dataclasses import dataclass, field

from msgspec.structs import replace

from perfdoctor.schema.fix import Change, Fix
from perfdoctor.trials.ladder import remaining as on_top_of_each_other
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.trial import Laboratory
from perfdoctor.trials.way import Play, Way
from tests.trials.test_trial import Answer, fix, fixes, measure


@dataclass
class Replays:
    """Plays with changes in place: each `base+fix` as the test says."""

    answers: dict[str, Answer]
    played: list[str] = field(default_factory=list)

    def way(self) -> Way:
        return Way(measure(), lambda change: bool(change.step), "replayed", after=self.after)

    def after(self, base: Change) -> Play:
        def play(change: Change, until: float) -> list[float]:
            self.played.append("+".join([*base.step, *change.step]))
            answer = self.answers[self.played[-1]]
            if isinstance(answer, Exception):
                raise answer
            return [math.log(answer)] * 5

        return play


def of_the_step(name: str) -> tuple[str, Fix]:
    return name, Fix(summary=name, how=name, change=Change(step={name: True}))


def remaining(replays: Replays, *helped: tuple[str, Fix]) -> list[tuple[str, tuple[str, ...]]]:
    lab = Laboratory([replays.way()], time.monotonic() + 1000, 0.05, say=lambda text: None)
    return [(each.check, each.after) for each in on_top_of_each_other(lab, helped)]


def test_what_gains_nothing_on_top_of_the_best_is_not_in_place_for_the_next() -> None:
    replays = Replays({"a+b": 1.0, "a+c": 1.5})
    found = remaining(replays, *map(of_the_step, "abc"))
    assert found == [("b", ("a",)), ("c", ("a",))]
    assert set(replays.played) == {"a+b", "a+c"}


def test_what_gains_on_top_of_the_best_is_in_place_for_the_next() -> None:
    replays = Replays({"a+b": 1.3, "a+b+c": WorkerEnded("it crashed")})
    found = remaining(replays, *map(of_the_step, "abc"))
    assert found == [("b", ("a",)), ("c", ("a", "b"))]


def of_the_training(name: str) -> tuple[str, Fix]:
    check, fix = of_the_step(name)
    return check, replace(fix, changes_results="training")


def test_what_changes_the_training_is_no_cause_if_something_else_takes_its_gain_away() -> None:
    replays = Replays({"b+a": 1.1, "b+c": 1.5})
    found = remaining(replays, of_the_training("a"), of_the_step("b"), of_the_step("c"))
    assert found == [("a", ("b",)), ("c", ("b",))]


def test_what_changes_the_training_is_the_cause_if_it_gains_in_any_case() -> None:
    replays = Replays({"b+a": 4.0, "a+b": 1.0})
    found = remaining(replays, of_the_training("a"), of_the_step("b"))
    assert found == [("a", ("b",)), ("b", ("a",))]


def test_of_two_that_gain_on_top_of_each_other_the_one_that_trains_the_same_comes_first() -> None:
    replays = Replays({"b+a": 3.0, "a+b": 1.5, "b+a+c": 1.5})
    found = remaining(replays, of_the_training("a"), of_the_step("b"), of_the_step("c"))
    assert found == [("a", ("b",)), ("c", ("b", "a"))]


def test_of_two_the_better_one_is_in_place_if_it_can_not_be_tried_on_top_of_the_other() -> None:
    replays = Replays({"b+a": WorkerEnded("it crashed"), "a+b": 1.5, "b+a+c": 1.5})
    found = remaining(replays, of_the_training("a"), of_the_step("b"), of_the_step("c"))
    assert found == [("a", ("b",)), ("c", ("b", "a"))]


def test_of_two_that_change_the_training_the_better_one_is_the_cause() -> None:
    replays = Replays({"a+b": 1.2})
    assert remaining(replays, of_the_training("a"), of_the_training("b")) == [("b", ("a",))]
    replays = Replays({"a+b": 1.2})
    assert remaining(replays, of_the_step("a"), of_the_training("b")) == [("b", ("a",))]


def test_fixes_that_no_replay_can_make_are_left_out_of_what_remains() -> None:
    assert remaining(Replays({}), of_the_step("a"), ("b", fix("b")), ("c", fixes("c")[0])) == []
