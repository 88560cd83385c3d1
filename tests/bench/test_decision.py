import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.bench.decision import ALPHA, LOOKS, Estimate, estimate, spent, verdict

COMPARISONS = 4000
LAUNCH_SD = 0.015


def simulated(slowdown: float, seed: int, threshold: float = 0.05) -> list[str | None]:
    """Verdicts of comparisons whose launches scatter as independent normal numbers."""
    found: list[str | None] = []
    generator = np.random.default_rng(seed)
    for _ in range(COMPARISONS):
        launches = generator.normal(0, LAUNCH_SD, (LOOKS[-1], 3))
        contrasts = np.log1p(slowdown) + launches[:, 2] - launches[:, :2].mean(1)
        controls = launches[:, 1] - launches[:, 0]
        found.append(decided(list(contrasts), list(controls), threshold))
    return found


def decided(contrasts: list[float], controls: list[float], threshold: float) -> str | None:
    for look, count in enumerate(LOOKS):
        seen = estimate(contrasts[:count], controls[:count], look)
        if not seen.control_holds:
            return None
        if answer := verdict(seen, threshold):
            return answer
    return None


@pytest.mark.parametrize("threshold", [1e-9, 0.02, 0.05])
def test_no_more_false_alarms_than_promised(threshold: float) -> None:
    found = simulated(0.0, seed=1, threshold=threshold)
    assert found.count("regressed") / COMPARISONS < ALPHA + 2 * np.sqrt(ALPHA / COMPARISONS)


def test_slowdowns_above_the_threshold_are_found() -> None:
    assert simulated(0.05, seed=2, threshold=0.02).count("regressed") / COMPARISONS > 0.95
    assert simulated(0.10, seed=3).count("regressed") / COMPARISONS > 0.99


def test_a_program_that_got_faster_is_said_to_be() -> None:
    assert simulated(-0.15, seed=4).count("improved") / COMPARISONS > 0.95


def test_nothing_is_said_where_two_launches_of_one_program_differ() -> None:
    contrasts, controls = [0.1, 0.11, 0.1, 0.09, 0.1], [0.05, 0.051, 0.049, 0.05, 0.05]
    assert not estimate(contrasts, controls, look=0).control_holds


def test_the_looks_together_spend_no_more_than_all() -> None:
    assert sum(spent(look, 1) for look in range(len(LOOKS))) == pytest.approx(ALPHA)
    assert spent(2, metrics=2) == spent(2, 1) / 2


ratios = st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=5)


@given(ratios, ratios)
def test_the_interval_holds_the_change(contrasts: list[float], controls: list[float]) -> None:
    found = estimate(contrasts, controls, look=0)
    assert found.low <= found.change + 1e-12 and found.change <= found.high + 1e-12
    assert 0 <= found.p <= 1
    assert found.visible >= found.high - found.change - 1e-9 or found.change > 0


@given(ratios, ratios)
def test_slower_is_the_opposite_of_faster(contrasts: list[float], controls: list[float]) -> None:
    found = estimate(contrasts, controls, look=0)
    mirrored = estimate([-each for each in contrasts], controls, look=0)
    assert (1 + found.low) * (1 + mirrored.high) == pytest.approx(1)
    assert found.control_holds == mirrored.control_holds


def seen(change: float, low: float, high: float) -> Estimate:
    return Estimate(5, change, low, high, 0.5, 0.0, True, 0.1)


@pytest.mark.parametrize(
    ("change", "low", "high", "answer"),
    [
        (0.06, 0.01, 0.11, "regressed"),
        (0.04, 0.01, 0.07, None),  # slower, but by how much is open
        (0.02, 0.01, 0.03, "pass"),  # slower by less than matters
        (0.0, -0.02, 0.02, "pass"),
        (0.06, -0.01, 0.13, None),
        (-0.08, -0.12, -0.04, "improved"),
        (-0.03, -0.05, -0.01, "pass"),
    ],
)
def test_what_is_said(change: float, low: float, high: float, answer: str | None) -> None:
    assert verdict(seen(change, low, high), 0.05) == answer
