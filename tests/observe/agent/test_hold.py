"""A call is held up, for a moment."""

import jax
import pytest

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent import hold as module
from perfdoctor.observe.agent.hold import Hold


def test_a_call_is_held_for_so_long_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_S", 0.01)
    hold = Hold(jax)
    assert hold(Function(lambda x: x + 1), (1,), {}) == 2
    assert hold.held.is_set() and not hold.over.is_set()
