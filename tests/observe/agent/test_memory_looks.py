"""How often memory is looked at."""

from itertools import pairwise
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from perfdoctor.observe.agent.memory import MemoryWatch
from perfdoctor.observe.agent.memory_looks import MemoryLooks, look_again_ns


@pytest.mark.parametrize(
    ("took_ms", "again_ms"), [(0.0, 20.0), (0.2, 20.0), (0.5, 50.0), (1.25, 125.0), (90.0, 125.0)]
)
def test_looks_at_memory_take_little_time_but_none_of_its_samples_lacks_one(
    took_ms: float, again_ms: float
) -> None:
    assert look_again_ns(round(took_ms * 1e6), 250_000_000) == round(again_ms * 1e6)


def test_after_a_gap_samples_keep_their_distance() -> None:
    """A short window's trace is written for a while before memory is looked at on."""
    memory, arrays = MemoryWatch(), [jnp.zeros(4)]
    looks = MemoryLooks(memory, SimpleNamespace(live_arrays=lambda: arrays), 2_000_000_000)
    for passed_ms in [*range(0, 450, 5), *range(2000, 2600, 5)]:
        assert looks.are_enough == (len(memory.samples) >= 4)
        looks.after(passed_ms * 1_000_000)
    at_s = [sample.at_s for sample in memory.samples]
    assert at_s[:3] == [0.2, 0.4, 2.0] and looks.are_enough
    assert all(later - earlier > 0.09 for earlier, later in pairwise(at_s))
