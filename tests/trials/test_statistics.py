import math
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from perfdoctor.schema.fix import Gain
from perfdoctor.trials.statistics import (
    FAITHFUL,
    LAUNCH_DF,
    LAUNCH_SD,
    LEVEL,
    LOOKS,
    MOST_BLURRED,
    MOST_PAIRS,
    UNLIKE,
    between_both,
    between_launches,
    blurred,
    clear,
    gain_of,
    last_look,
    quantile,
    trimmed_mean,
    with_unlike,
)
from tests.benchmarks.interval_coverage import pairs_of_a_trial

log_ratios = st.floats(-1, 1)
slices = st.lists(log_ratios, min_size=5, max_size=20)
pairs = st.lists(slices, min_size=1, max_size=5)
TINY = 1e-9


def measured(low: float, speedup: float, high: float) -> Gain:
    return Gain(speedup=speedup, low=low, high=high, basis="measured")


def log_width(gain: Gain) -> float:
    return math.log(gain.high / gain.low)


@given(st.lists(log_ratios, min_size=1, max_size=20))
def test_trimmed_mean_lies_within_the_values(values: list[float]) -> None:
    mean, error, df = trimmed_mean(values)
    assert min(values) - TINY <= mean <= max(values) + TINY
    assert error >= 0 and df >= 1


@given(slices)
def test_trimmed_mean_is_symmetric_under_negation(values: list[float]) -> None:
    mean, error, df = trimmed_mean(values)
    opposite, same_error, same_df = trimmed_mean([-value for value in values])
    assert opposite == pytest.approx(-mean)
    assert same_error == pytest.approx(error)
    assert same_df == df


@given(slices, st.randoms(use_true_random=False))
def test_trimmed_mean_does_not_depend_on_the_order(values: list[float], random: Random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert trimmed_mean(shuffled) == trimmed_mean(values)


@given(st.lists(log_ratios, min_size=9, max_size=9), st.floats(-1000, 1000))
def test_one_wild_value_moves_the_trimmed_mean_within_the_others(
    values: list[float], wild: float
) -> None:
    mean, _, _ = trimmed_mean([*values, wild])
    assert min(values) - TINY <= mean <= max(values) + TINY


def test_trimmed_mean_of_ten_leaves_out_two_at_each_end() -> None:
    mean, _, df = trimmed_mean([-9.0, -8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0, 80.0])
    assert (mean, df) == (3.5, 5)


def test_standard_error_is_yuens() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]  # winsorised: 2 2 3 4 4
    _, error, df = trimmed_mean(values)
    variance = sum((x - 3) ** 2 for x in (2, 2, 3, 4, 4)) / 4
    assert error == pytest.approx(math.sqrt(variance * 4 / (3 * 2)))
    assert df == 2


def test_one_value_has_no_known_error() -> None:
    assert trimmed_mean([0.5]) == (0.5, math.inf, 1)


def test_quantiles_are_those_of_the_tables() -> None:
    assert pytest.approx(1 - 0.05 / 3 / 2) == LEVEL
    assert quantile() == pytest.approx(2.394, abs=1e-3)
    assert quantile(5) == pytest.approx(3.534, abs=1e-3)
    assert quantile(1e9) == pytest.approx(quantile(), rel=1e-6)


@given(pairs)
def test_the_interval_contains_the_speedup(seen: list[list[float]]) -> None:
    gain = gain_of(seen)
    assert 0 < gain.low < gain.speedup < gain.high
    assert gain.basis == "measured"


@given(pairs)
def test_the_inverse_change_has_the_inverse_gain(seen: list[list[float]]) -> None:
    gain, inverse = gain_of(seen), gain_of([[-value for value in pair] for pair in seen])
    assert inverse.speedup == pytest.approx(1 / gain.speedup)
    assert inverse.low == pytest.approx(1 / gain.high)
    assert inverse.high == pytest.approx(1 / gain.low)


@given(slices, st.integers(1, 5))
def test_more_pairs_narrow_the_interval(pair: list[float], count: int) -> None:
    few, more = gain_of([pair] * count), gain_of([pair] * (count + 1))
    assert log_width(more) / log_width(few) <= math.sqrt(count / (count + 1)) + TINY


def test_slices_without_noise_leave_the_noise_of_the_launch() -> None:
    gain = gain_of([[0.1] * 10])
    assert gain.speedup == pytest.approx(math.exp(0.1))
    assert log_width(gain) == pytest.approx(2 * quantile(LAUNCH_DF) * LAUNCH_SD)


def test_one_pair_says_nothing_of_how_launches_differ() -> None:
    assert between_launches([(0.3, 0.01, 5)]) == (LAUNCH_SD, LAUNCH_DF)


def test_launches_that_differ_widen_the_interval_and_such_that_agree_narrow_it() -> None:
    alike, unlike = [[0.1] * 9, [0.1] * 9], [[0.0] * 9, [0.2] * 9]
    assert between_launches([trimmed_mean(pair) for pair in alike])[0] < LAUNCH_SD
    assert between_launches([trimmed_mean(pair) for pair in unlike])[0] > LAUNCH_SD
    assert log_width(gain_of(unlike)) > 2 * log_width(gain_of(alike))


def test_what_slices_scatter_is_not_put_down_to_launches() -> None:
    noisy = [(0.0, 0.1, 5), (0.1, 0.1, 5)]
    assert between_launches(noisy)[0] < LAUNCH_SD < between_launches([(0.0, 0, 5), (0.1, 0, 5)])[0]


def test_many_pairs_outweigh_what_was_assumed() -> None:
    random = np.random.default_rng(3)
    estimates = [(float(each), 0.0, 5) for each in random.normal(0, 0.1, 400)]
    scale, df = between_launches(estimates)
    assert scale == pytest.approx(0.1, rel=0.1)
    assert df == LAUNCH_DF + 399


def test_each_pair_counts_once_however_many_slices_it_has() -> None:
    assert gain_of([[0.0] * 5, [0.2] * 50]).speedup == pytest.approx(math.exp(0.1))


@given(st.lists(st.floats(0.5, 3), min_size=3, max_size=3).map(sorted), st.floats(0, 1))
def test_a_clear_gain_lies_on_one_side_of_what_is_asked(bounds: list[float], least: float) -> None:
    low, speedup, high = bounds
    assert clear(measured(low, speedup, high), least) == (not low < 1 + least <= high)


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (1.06, 1.5, True),
        (1.05, 1.5, True),
        (1.04, 1.5, False),
        (0.9, 1.04, True),
        (0.9, 1.05, False),
    ],
)
def test_the_answer_is_clear(low: float, high: float, answer: bool) -> None:
    assert clear(measured(low, 1.045, high), 0.05) is answer


@pytest.mark.parametrize(
    ("second", "count"), [(0.1, LOOKS), (0.07, 4), (0.3, MOST_PAIRS), (-0.1, LOOKS)]
)
def test_the_last_look_is_worth_as_many_pairs_as_make_the_answer_clear(
    second: float, count: int
) -> None:
    """They are taken to scatter like the first two; where MOST_PAIRS would not do, it is LOOKS."""
    assert last_look([[0.1] * 5, [second] * 5], 0.05) == count


@pytest.mark.parametrize("truth", [0.0, 0.06, 0.5])
@pytest.mark.parametrize("slice_sd", [0.01, 0.05, 0.15])
@pytest.mark.parametrize("launch_sd", [0.0, 0.02, 0.03, None])
def test_the_interval_covers_the_truth_as_often_as_it_says(
    truth: float, slice_sd: float, launch_sd: float | None
) -> None:
    """Trials that stop as a real one does: as soon as the answer is clear. None: of programs whose
    launches differ as those do of which there are saved pairs.
    """
    random = np.random.default_rng(20261121)
    covered, trials = 0, 700
    for _ in range(trials):
        sd = LAUNCH_SD * math.sqrt(LAUNCH_DF / random.chisquare(LAUNCH_DF))
        sd = sd if launch_sd is None else launch_sd
        gain = gain_of(pairs_of_a_trial(random, truth, sd, slice_sd))
        covered += gain.low <= math.exp(truth) <= gain.high
    assert covered / trials >= 0.95


def test_the_estimate_is_unbiased() -> None:
    random = np.random.default_rng(1)
    gains = [gain_of([random.normal(0.2, 0.05, size=8).tolist()]) for _ in range(500)]
    assert fmean(math.log(gain.speedup) for gain in gains) == pytest.approx(0.2, abs=0.005)


errors = st.floats(math.log(1 - FAITHFUL), math.log(1 + FAITHFUL))


@given(st.floats(0.3, 50), errors)
def test_what_a_replay_has_too_much_is_of_the_fix_or_of_the_rest(gain: float, error: float) -> None:
    low, high = blurred(gain, error)
    assert low <= gain <= high
    observed, left = math.exp(-error), 1 / gain
    of_the_fix, of_the_rest = observed / left, observed / max(left / 3, left - 1 + observed)
    assert high <= max(gain, of_the_fix, of_the_rest) * (1 + TINY)
    assert high <= MOST_BLURRED * gain * math.exp(abs(error)) * (1 + TINY)


@given(errors)
def test_a_fix_that_takes_nothing_away_gains_nothing_however_wrong_the_replay(error: float) -> None:
    assert blurred(1.0, error) == pytest.approx((1.0, 1.0))


def test_a_fix_that_takes_nearly_all_away_may_gain_far_less() -> None:
    low, high = blurred(20.0, math.log(0.95))  # a twentieth of the step is not replayed
    assert low < 11 and high > 20


def test_a_replay_that_could_not_be_compared_may_be_off_by_as_much_as_is_allowed() -> None:
    assert blurred(2.0, None) == pytest.approx((2 / (1 + FAITHFUL), 2 * (1 + FAITHFUL)))


@given(pairs)
def test_a_gain_that_is_not_of_the_program_is_less_certain_the_more_is_taken_away(
    seen: list[list[float]],
) -> None:
    own, replayed = gain_of(seen), gain_of(seen, "replayed")
    assert replayed.speedup == own.speedup
    more = UNLIKE * max(0.0, 1 - 1 / own.speedup)
    assert log_width(replayed) / 2 == pytest.approx(math.hypot(log_width(own) / 2, more))


@given(pairs)
def test_the_error_of_the_replay_and_what_is_unlike_have_nothing_to_do_with_each_other(
    seen: list[list[float]],
) -> None:
    own, replayed = gain_of(seen), gain_of(seen, "replayed", None)
    more = UNLIKE * max(0.0, 1 - 1 / own.speedup)
    half = math.hypot(log_width(own) / 2 + math.log(1 + FAITHFUL), more)
    assert log_width(replayed) / 2 == pytest.approx(half)


def test_what_takes_nothing_away_leaves_nothing_unlike() -> None:
    assert with_unlike(1.0, 0.1, 0.2) == with_unlike(0.5, 0.1, 0.2) == (0.1, 0.2)
    assert with_unlike(2.0, 0.0, 0.0) == pytest.approx((UNLIKE / 2, UNLIKE / 2))
    assert with_unlike(1e9, 0.0, 0.0) == pytest.approx((UNLIKE, UNLIKE))


def test_a_gain_of_two_ways_reaches_from_one_to_the_other() -> None:
    """A step of 10 ms, 4 of them loading: with 4 times the batch it takes 28 ms or 16."""
    least = Gain(speedup=40 / 28, low=1.3, high=1.6, basis="replayed")
    most = Gain(speedup=40 / 16, low=2.2, high=2.7, basis="replayed")
    gain = between_both(least, most)
    assert (gain.low, gain.high, gain.basis) == (1.3, 2.7, "estimated")
    assert gain.speedup == pytest.approx(math.sqrt(40 / 28 * 40 / 16))


def test_two_ways_that_agree_leave_the_gain_that_was_measured() -> None:
    gain = Gain(speedup=2.0, low=1.8, high=2.2, basis="replayed")
    assert between_both(gain, structs.replace(gain, speedup=2.1)) == gain
    assert between_both(gain, structs.replace(gain, speedup=1.5)) == gain
