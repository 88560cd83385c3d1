"""How often memory is looked at."""

import pytest

from perfdoctor.observe.agent.memory_looks import look_again_ns


@pytest.mark.parametrize(
    ("took_ms", "again_ms"), [(0.0, 20.0), (0.2, 20.0), (0.5, 50.0), (1.25, 125.0), (90.0, 125.0)]
)
def test_looks_at_memory_take_little_time_but_none_of_its_samples_lacks_one(
    took_ms: float, again_ms: float
) -> None:
    assert look_again_ns(round(took_ms * 1e6), 250_000_000) == round(again_ms * 1e6)
