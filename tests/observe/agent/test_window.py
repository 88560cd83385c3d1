import pytest

from perfdoctor.observe.agent.window import LONGEST_WINDOW_S, WINDOW_STEPS, with_enough_steps


@pytest.mark.parametrize(
    ("step_ms", "length_s"),
    [
        (None, 2.0),
        (5.0, 2.0),
        (500.0, WINDOW_STEPS * 0.5),
        (9000.0, LONGEST_WINDOW_S),
    ],
)
def test_a_window_holds_some_steps(step_ms: float | None, length_s: float) -> None:
    assert with_enough_steps(2.0, step_ms) == length_s
