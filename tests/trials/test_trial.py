import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from msgspec.structs import replace

from perfdoctor.schema.fix import Change, Fix, Speeds
from perfdoctor.schema.workload import Workload
from perfdoctor.trials.change import changed_workload
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.statistics import LOOKS
from perfdoctor.trials.trial import Laboratory, Trial, Wish, measured, record, speedup
from perfdoctor.trials.way import Play, Way, on_the_program

MOST_PLAYS = 20
Answer = float | WorkerEnded | msgspec.ValidationError


@dataclass
class Pairs:
    """A play: answers at once what the test wants measured of each fix."""

    answers: dict[str, Iterator[Answer]]
    played: list[str] = field(default_factory=list)

    def __call__(self, change: Change, until: float) -> list[float]:
        name = change.env["FIX"]
        assert name is not None
        self.played.append(name)
        assert len(self.played) <= MOST_PLAYS, f"plays on and on: {self.played}"
        answer = next(self.answers[name])
        if isinstance(answer, Exception):
            raise answer
        return [math.log(answer)] * 5


def measure(**answers: Answer | Sequence[Answer]) -> Pairs:
    """Has each fix measured as the test says: one answer, or several in order."""
    every = {n: a if isinstance(a, Sequence) else [a] for n, a in answers.items()}
    return Pairs({name: again(*each) for name, each in every.items()})


def again(*answers: Answer) -> Iterator[Answer]:
    """These answers, the last one over and over."""
    yield from answers
    while True:
        yield answers[-1]


def fix(name: str, speeds_up: Speeds = "steps") -> Fix:
    change = Change(env={"FIX": name}, speeds_up=speeds_up)
    return Fix(summary=name, how=f"use {name}", change=change)


def fixes(*names: str) -> list[Fix]:
    return [fix(name) for name in names]


def laboratory(
    steps: Play, whole: Play | None = None, seconds: float = 1000.0, said: list[str] | None = None
) -> Laboratory:
    """Whose plays of pairs, and of whole runs, are these."""
    say = (said if said is not None else []).append
    until = time.monotonic() + seconds
    ways = on_the_program({"steps": steps, "launch": whole or measure()})
    return Laboratory(ways, until, min_gain=0.05, say=say)


def test_the_best_fix_stands_first() -> None:
    pairs = measure(a=1.1, b=2.0, c=1.5)
    tried = laboratory(pairs).best_of("etl", fixes("a", "b", "c"), sweep=False)
    assert [each.fix.summary for each in tried] == ["b", "a", "c"]
    assert {each.check for each in tried} == {"etl"}


def test_a_fix_that_is_worth_it_stands_before_a_bound_that_is_not() -> None:
    ahead, bound = fix("ahead"), fix("bound")
    assert bound.change is not None
    bound = replace(bound, change=replace(bound.change, is_bound=True))
    pairs = measure(ahead=1.1, bound=1.2)
    tried = laboratory(pairs).best_of("etl", [ahead, bound], sweep=True)
    assert [each.fix.summary for each in tried] == ["ahead", "bound"]


def test_a_line_that_is_worth_it_stands_before_a_bound_that_turns_out_not_to_be() -> None:
    line, bound = fix("line"), fix("bound")
    assert bound.change is not None
    bound = replace(bound, change=replace(bound.change, is_bound=True))

    def order(**answers: float | list[float]) -> list[str]:
        way = Way(measure(**answers), lambda change: True, "replayed")
        lab = Laboratory([way], time.monotonic() + 1000, 0.05, say=lambda text: None)
        return [each.fix.summary for each in lab.best_of("etl", [line, bound], sweep=False)]

    assert order(line=1.2, bound=[1.26, 1.2]) == ["line", "bound"]
    assert order(line=1.03, bound=[1.26, 1.2]) == ["bound", "line"]
    assert order(line=1.2, bound=2.0) == ["bound", "line"]


def test_each_check_gets_a_pair_before_one_gets_its_second() -> None:
    pairs = measure(nothing=1.02, worse=0.9, larger=2.0, largest=3.0)
    lab = laboratory(pairs)
    ladder = Wish("batch-size", fixes("larger", "largest"), sweep=True)
    tried = lab.best_of_each([Wish("etl", fixes("nothing", "worse"), sweep=False), ladder])
    assert pairs.played[:4] == ["nothing", "larger", "worse", "largest"]
    assert pairs.played[4] == "largest", "what gains the most is measured well before the rest"
    assert [each.fix.summary for each in tried] == ["nothing", "worse", "largest", "larger"]


def test_the_best_of_several_is_measured_once_more() -> None:
    pairs = measure(a=1.1, b=2.0)
    tried = laboratory(pairs).best_of("etl", fixes("a", "b"), sweep=False)
    assert pairs.played == ["a", "b", "b"]
    assert [len(each.log_ratios) for each in tried] == [2, 1]


def test_a_clear_answer_to_a_single_fix_needs_one_pair() -> None:
    pairs = measure(a=2.0)
    laboratory(pairs).best_of("etl", fixes("a"), sweep=False)
    assert pairs.played == ["a"]


def test_once_more_adds_a_pair_to_a_single_one() -> None:
    pairs = measure(a=[2.0, 2.2])
    one = laboratory(pairs)
    [tried] = one.best_of("etl", fixes("a"), sweep=False)
    again = one.once_more(tried)
    assert [pair[0] for pair in again.log_ratios] == [math.log(2.0), math.log(2.2)]
    assert one.once_more(again) is again
    assert pairs.played == ["a", "a"]


def test_a_second_pair_that_fails_takes_nothing_from_the_first() -> None:
    one = laboratory(measure(a=[2.0, WorkerEnded("out of memory")]))
    [tried] = one.best_of("etl", fixes("a"), sweep=False)
    assert one.once_more(tried) == tried


def test_a_gain_of_a_replay_that_is_clear_needs_no_second_pair() -> None:
    way = Way(measure(a=[1.5, 1.0]), lambda change: True, "replayed", renew=lambda: None)
    lab = Laboratory([way], time.monotonic() + 1000, 0.05, say=lambda text: None)
    [tried] = lab.best_of("workspaces", fixes("a"), sweep=False)
    assert len(tried.log_ratios) == 1
    assert lab.once_more(tried) is tried


@pytest.mark.parametrize("gain", [1.06, 1.24])
def test_each_further_pair_of_a_replay_is_of_another_process(gain: float) -> None:
    """How memory lies in one may be all that a small gain shows."""
    processes: list[int] = []
    pairs = measure(a=gain)
    way = Way(pairs, lambda change: True, "replayed", renew=lambda: processes.append(1))
    lab = Laboratory([way], time.monotonic() + 1000, 0.05, say=lambda text: None)
    [tried] = lab.best_of("workspaces", fixes("a"), sweep=False)
    assert len(processes) == len(tried.log_ratios) - 1 > 0


def test_what_a_change_may_not_need_is_left_out_in_a_further_pair() -> None:
    """Of the best one only; the gain reaches from one to the other."""
    pairs = measure(a=1.5, b=2.0, best=8.0)
    way = Way(pairs, lambda change: True, "replayed", at_most=lambda change: fix("best").change)
    lab = Laboratory([way], time.monotonic() + 1000, 0.05, say=lambda text: None)
    tried, other = lab.best_of("batch-size", fixes("a", "b"), sweep=False)
    assert pairs.played == ["a", "b", "best"]
    assert other.log_ratios_at_most == () and len(tried.log_ratios_at_most) == 1
    gain = measured(tried)
    assert gain is not None and gain.basis == "estimated"
    assert gain.low < 2.0 < 8.0 < gain.high and gain.speedup == pytest.approx(4.0)


def test_there_is_no_second_pair_after_the_deadline() -> None:
    pairs = measure(a=2.0)
    [tried] = laboratory(pairs).best_of("etl", fixes("a"), sweep=False)
    assert laboratory(pairs, seconds=1.0).once_more(tried) is tried


def test_an_unclear_answer_is_looked_at_again_but_not_for_ever() -> None:
    pairs = measure(a=1.06)
    laboratory(pairs).best_of("etl", fixes("a"), sweep=False)
    assert pairs.played == ["a"] * LOOKS


@pytest.mark.parametrize(("gain", "count"), [(1.08, 4), (1.07, 5), (1.06, LOOKS), (1.2, 2)])
def test_as_many_pairs_are_played_as_make_the_answer_clear(gain: float, count: int) -> None:
    pairs = measure(a=gain)
    laboratory(pairs).best_of("etl", fixes("a"), sweep=False)
    assert len(pairs.played) == count


def test_what_stays_unclear_comes_after_what_others_need() -> None:
    pairs = measure(unclear=1.08, small=1.07)
    wishes = [Wish("etl", fixes("unclear"), sweep=False), Wish("gc", fixes("small"), sweep=False)]
    laboratory(pairs).best_of_each(wishes)
    assert pairs.played[:5] == ["unclear", "small", "unclear", "small", "unclear"]


def test_a_ladder_is_climbed_until_growth_stops() -> None:
    pairs = measure(a=2.0, b=3.0, c=3.1, d=9.0)
    tried = laboratory(pairs).best_of("batch-size", fixes("a", "b", "c", "d"), sweep=True)
    assert pairs.played[:3] == ["a", "b", "c"] and "d" not in pairs.played
    assert tried[0].fix.summary == "b", "c is better by less than is worth it"


def test_a_sweep_ends_where_one_of_its_fixes_breaks() -> None:
    pairs = measure(a=2.0, b=WorkerEnded("out of memory"), c=9.0)
    tried = laboratory(pairs).best_of("batch-size", fixes("a", "b", "c"), sweep=True)
    assert "c" not in pairs.played
    assert [(each.fix.summary, each.failure) for each in tried] == [
        ("a", None),
        ("b", "out of memory"),
    ]


def test_a_fix_that_cannot_be_run_is_recorded_and_the_others_go_on() -> None:
    pairs = measure(a=WorkerEnded("ValueError: no such thing"), b=2.0)
    tried = laboratory(pairs).best_of("etl", fixes("a", "b"), sweep=False)
    assert [each.fix.summary for each in tried] == ["b", "a"]
    assert tried[1].failure == "ValueError: no such thing"
    assert tried[1].log_ratios == ()


def test_where_no_fix_can_be_run_all_failures_are_recorded() -> None:
    pairs = measure(a=WorkerEnded("one"), b=WorkerEnded("other"))
    tried = laboratory(pairs).best_of("etl", fixes("a", "b"), sweep=False)
    assert [each.failure for each in tried] == ["one", "other"]


def test_a_fix_that_fails_later_keeps_its_first_pair_and_is_left_alone() -> None:
    pairs = measure(a=[1.06, WorkerEnded("killed")])
    tried = laboratory(pairs).best_of("etl", fixes("a"), sweep=False)
    assert pairs.played == ["a", "a"]
    assert (len(tried[0].log_ratios), tried[0].failure) == (1, "killed")


def test_an_invalid_change_is_a_failure_and_no_crash() -> None:
    def refusing(change: Change, until: float) -> list[float]:
        raise AssertionError(changed_workload(Workload(), change))

    wrong = Fix(summary="wrong", how="wrong", change=Change(workload={"data.prefetch": -1}))
    (tried,) = laboratory(refusing).best_of("etl", [wrong], sweep=False)
    assert tried.failure is not None and "data.prefetch" in tried.failure


def test_advice_that_no_machine_can_follow_is_not_tried() -> None:
    pairs = measure(a=2.0)
    advice = Fix(summary="buy a faster disk", how="money")
    tried = laboratory(pairs).best_of("etl", [advice, fix("a")], sweep=False)
    assert pairs.played == ["a"]
    assert [each.fix.summary for each in tried] == ["a"]


def test_what_speeds_up_the_launch_is_measured_on_whole_runs() -> None:
    launches = measure(cache=1.5)
    lab = laboratory(measure(), launches)
    (tried,) = lab.best_of("compile-cache", [fix("cache", "launch")], sweep=False)
    assert launches.played == ["cache"]
    assert tried.log_ratios == ((math.log(1.5),) * 5,)


def test_whole_runs_that_fail_are_recorded() -> None:
    lab = laboratory(measure(), measure(cache=WorkerEnded("the disk is full")))
    (tried,) = lab.best_of("compile-cache", [fix("cache", "launch")], sweep=False)
    assert (tried.failure, tried.log_ratios) == ("the disk is full", ())


def test_whole_runs_beside_pairs_of_live_processes() -> None:
    pairs, launches = measure(a=2.0), measure(cache=1.5)
    some = [fix("cache", "launch"), fix("a")]
    tried = laboratory(pairs, launches).best_of("etl", some, sweep=False)
    assert [each.fix.summary for each in tried] == ["a", "cache"]
    assert launches.played == ["cache"]
    assert pairs.played == ["a", "a"]


def test_nothing_to_try_is_nothing_tried() -> None:
    pairs = measure()
    assert laboratory(pairs).best_of("etl", [], sweep=False) == []


def test_nothing_begins_that_would_end_after_the_deadline() -> None:
    pairs = measure(a=2.0)
    assert laboratory(pairs, seconds=5.0).best_of("etl", fixes("a"), sweep=False) == []
    assert pairs.played == []


def test_a_slow_pair_shortens_what_still_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("perfdoctor.trials.trial.time.monotonic", lambda: now[0])
    pairs = measure(a=2.0, b=3.0)

    def slow(change: Change, until: float) -> list[float]:
        now[0] += 60.0
        return pairs(change, until)

    lab = laboratory(slow, seconds=100.0)
    lab.best_of("etl", fixes("a", "b"), sweep=False)
    assert lab.longest_s == {"measured": 60.0}
    assert pairs.played == ["a"]


def test_all_fixes_together_are_recorded_under_no_check() -> None:
    pairs = measure(all=2.5)
    (tried,) = laboratory(pairs).together(Change(env={"FIX": "all"}))
    assert tried.check == ""
    assert tried.log_ratios == ((math.log(2.5),) * 5,)


def test_the_user_is_told_what_is_tried() -> None:
    pairs = measure(a=1.06)
    said: list[str] = []
    laboratory(pairs, said=said).best_of("etl", fixes("a"), sweep=False)
    assert said == [f"trying use a (pair {n})" for n in range(1, LOOKS + 1)]


def test_a_trial_without_pairs_has_no_gain() -> None:
    way = Way(measure(), lambda change: True)
    assert Trial(fix("a"), way).gain is None
    assert speedup(Trial(fix("a"), way)) == 0.0
    assert record("etl", Trial(fix("a"), way, failure="killed")).failure == "killed"


def in_two_ways(first: Play, second: Play, *, gives_way: bool) -> Laboratory:
    """Both can make any change."""
    ways = [
        Way(first, lambda change: True, gives_way=gives_way),
        Way(second, lambda change: True, "replayed", 0.05),
    ]
    return Laboratory(ways, time.monotonic() + 1000.0, 0.05, lambda text: None)


def test_a_change_that_a_loop_does_not_take_is_measured_in_the_next_way() -> None:
    found = in_two_ways(measure(a=WorkerEnded("no")), measure(a=2.0), gives_way=True)
    (tried,) = found.best_of("etl", fixes("a"), sweep=False)
    assert (tried.basis, tried.failure) == ("replayed", None)
    assert tried.log_ratios


def test_a_program_that_a_change_breaks_says_so() -> None:
    found = in_two_ways(measure(a=WorkerEnded("no")), measure(a=2.0), gives_way=False)
    (tried,) = found.best_of("etl", fixes("a"), sweep=False)
    assert (tried.basis, tried.failure, tried.log_ratios) == ("measured", "no", ())


def test_what_could_be_measured_once_stays_so_measured() -> None:
    first = measure(a=[2.0, WorkerEnded("killed")], b=1.0)
    found = in_two_ways(first, measure(), gives_way=True)
    best, _ = found.best_of("etl", fixes("a", "b"), sweep=False)
    assert (best.basis, len(best.log_ratios), best.failure) == ("measured", 1, "killed")
