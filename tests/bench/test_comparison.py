import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from msgspec.structs import replace

from perfdoctor.bench.comparison import GATED, compared, exact_changes, gated_of, looked_at
from perfdoctor.bench.decision import CONFIRMED_AFTER, LOOKS
from perfdoctor.bench.pairs import Pair
from perfdoctor.schema.benchmark import Comparison
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.trials.live import OutOfTime, WorkerEnded
from tests.bench.made import EXACT, launch


def pairs(slower: float = 0.0, sd: float = 0.01, bias: float = 0.0) -> Iterator[Pair]:
    """Of launches that scatter so; the second baseline is slower by `bias`."""
    generator = np.random.default_rng(7)
    while True:
        launches = generator.normal(0, sd, (3, len(GATED)))
        launches[2, 0] += np.log1p(slower)
        launches[1] += bias
        contrast = launches[2] - launches[:2].mean(0)
        control = launches[1] - launches[0]
        yield Pair(
            dict(zip(GATED, contrast, strict=True)),
            dict(zip(GATED, control, strict=True)),
            candidate=launch(),
            baselines=(launch(), launch()),
        )


def playing(source: Iterator[Pair]) -> Callable[[float], Pair]:
    return lambda until: next(source)


def comparison(play: Callable[[float], Pair], threshold: float = 0.05) -> Comparison:
    return compared(play, "git:main", threshold, time.monotonic() + 3600, lambda text: None)


def test_equal_programs_pass_after_the_first_look() -> None:
    found = comparison(playing(pairs(sd=0.005)))
    assert (found.verdict, found.pairs) == ("pass", LOOKS[0])
    assert {each.name: each.verdict for each in found.metrics} == dict.fromkeys(GATED, "pass")


def test_a_slower_step_is_named() -> None:
    found = comparison(playing(pairs(0.1)))
    assert found.verdict == "regressed"
    assert found.summary.startswith("step 1") and "longer" in found.summary
    step, compilation = found.metrics
    assert (step.verdict, compilation.verdict) == ("regressed", "pass")
    assert step.low <= 0.1 <= step.high


def test_a_slowdown_is_seen_more_often_than_health() -> None:
    clear, healthy = pairs(0.3, sd=0.001), pairs(0.0, sd=0.001)
    assert comparison(playing(clear)).pairs == CONFIRMED_AFTER > comparison(playing(healthy)).pairs


def test_a_faster_step_is_said() -> None:
    assert comparison(playing(pairs(-0.2))).verdict == "improved"


def test_close_to_the_threshold_more_pairs_are_played() -> None:
    assert comparison(playing(pairs(0.03, sd=0.03))).pairs > LOOKS[0]


def test_what_stays_open_says_what_would_decide_it() -> None:
    found = comparison(playing(pairs(0.0, sd=0.15)))
    assert (found.verdict, found.pairs) == ("inconclusive", LOOKS[-1])
    assert "would have been found" in found.summary and "would decide it" in found.summary


def test_nothing_is_claimed_where_the_control_fails() -> None:
    found = comparison(playing(pairs(0.1, bias=0.2)))
    assert found.verdict == "inconclusive"
    assert "two launches of the baseline itself differ" in found.summary


def test_a_whole_step_is_not_compared_with_one_of_its_programs() -> None:
    whole = replace(EXACT, flops=1e9, bytes_accessed=1e9, temp_bytes=9, programs=3, dispatches=3.0)
    assert [each.name for each in exact_changes(EXACT, whole)] == ["dispatches"]
    more = replace(whole, flops=2e9, programs=4)
    assert [each.name for each in exact_changes(whole, more)] == ["flops", "programs"]


def until_it_breaks(
    count: int, kind: type[WorkerEnded] = WorkerEnded, slower: float = 0.3
) -> Callable[[float], Pair]:
    """Plays so many pairs, then the process ends."""
    left = iter(range(count))
    source = pairs(slower, sd=0.001)

    def play(until: float) -> Pair:
        if next(left, None) is None:
            raise kind("killed, as the kernel does when memory runs out")
        return next(source)

    return play


@pytest.mark.parametrize("slower", [0.0, 0.3])
def test_a_failure_leaves_the_numbers_but_no_verdict(slower: float) -> None:
    found = comparison(until_it_breaks(2, slower=slower))
    assert (found.verdict, found.pairs) == ("inconclusive", 2)
    assert "memory runs out" in found.summary and found.metrics


def test_what_was_measured_when_the_time_is_up_counts() -> None:
    assert comparison(until_it_breaks(3, OutOfTime)).verdict == "regressed"


@pytest.mark.parametrize("count", [0, 1])
def test_too_little_to_compare_says_why(count: int) -> None:
    with pytest.raises(NothingMeasured, match="memory runs out"):
        comparison(until_it_breaks(count))


def test_a_budget_that_is_too_small_says_so() -> None:
    with pytest.raises(NothingMeasured, match="budget"):
        compared(playing(pairs()), "git:main", 0.05, time.monotonic() - 1, lambda text: None)


def test_looks_between_two_are_paid_as_the_later_one() -> None:
    some = [pair for pair, _ in zip(pairs(0.1), range(8), strict=False)]
    widths = [
        found["step_time"].high - found["step_time"].change
        for found in (looked_at(some[:count], 0.05) for count in (5, 6, 8))
    ]
    assert widths[0] > widths[2]


def test_exact_changes_are_told_with_both_sides() -> None:
    assert exact_changes(EXACT, EXACT) == ()
    assert exact_changes(None, EXACT) == ()
    (change,) = exact_changes(EXACT, replace(EXACT, compiles=8))
    assert (change.name, change.before, change.after) == ("compiles", 7, 8)


def test_a_metric_that_regressed_leaves_its_share_of_the_error_to_the_other() -> None:
    alone = [pair for pair, _ in zip(pairs(0.0), range(5), strict=False)]
    beside = [pair for pair, _ in zip(pairs(0.3), range(5), strict=False)]
    widths = [
        found["compile_time"].high - found["compile_time"].change
        for found in (looked_at(alone, 0.05), looked_at(beside, 0.05))
    ]
    assert widths[1] < widths[0]


def test_compiling_is_gated_where_it_is_long_and_another_step_is_compiled() -> None:
    both, step = ("step_time", "compile_time"), ("step_time",)
    assert gated_of([5.0, 5.0], ["ab", "cd"]) == both
    assert gated_of([5.0, 5.0], ["ab", "ab"]) == step
    assert gated_of([0.3, 0.3], ["ab", "cd"]) == step
    assert gated_of([0.3, 5.0], ["ab", "cd"]) == both
    assert gated_of([5.0, 5.0], [None, None]) == both


def test_a_metric_that_is_not_gated_is_told_and_decides_nothing() -> None:
    def play(until: float) -> Pair:
        pair = next(source)
        noise = float(generator.normal(0, 1))
        return dataclasses.replace(pair, contrasts={**pair.contrasts, "compile_time": noise})

    source, generator = pairs(), np.random.default_rng(1)
    ends = time.monotonic() + 3600
    found = compared(play, "git:main", 0.05, ends, lambda text: None, ("step_time",))
    assert (found.verdict, found.pairs) == ("pass", LOOKS[0])
    assert [(each.name, each.gated) for each in found.metrics] == [
        ("step_time", True),
        ("compile_time", False),
    ]
