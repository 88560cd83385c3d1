"""A first look at the calls of programs that are over before they are steady."""

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.observe.agent import calls, made_up, timing
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.glance import Glance
from perfdoctor.observe.agent.made_up import save_made_up
from perfdoctor.observe.agent.refusal import Unwanted
from perfdoctor.observe.agent.shapes import Shapes
from perfdoctor.schema.capture import AS_IT_IS, Capture
from tests.observe.agent.heard import Program, makers
from tests.observe.agent.test_capture import run, value

STEPS = 150
"""More than are probed."""


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each call it is told when it was computed; as many are probed however slow they are."""
    monkeypatch.setattr(timing, "MARK_S", 0.0)
    monkeypatch.setattr(calls, "SOON_S", math.inf)
    monkeypatch.setattr(calls, "LATEST_S", math.inf)


def playing(made: Any) -> Any:
    """State, among it a key; a constant, new data, and a static argument."""

    def step(p: Any, key: Any, table: Any, x: Any, rate: float, dtype: Any) -> Any:
        key, sub = jax.random.split(key)
        return p + jax.random.normal(sub, p.shape, dtype) + table[x].sum() * rate, key

    jitted = made.jit(step, static_argnames="dtype")
    p, key, table = jnp.zeros(8), jax.random.key(0), jnp.arange(4.0)
    for number in range(1000):
        p, key = jitted(p, key, table, np.full(2, number % 4, np.int32), 0.5, dtype=jnp.float32)
        jax.block_until_ready(p)
        yield


def glanced(program: Program, steps: int = STEPS) -> Glance:
    """So many steps of it were seen."""
    found = Glance(jax, {})
    made, hearing = makers(found)
    for _ in islice(program(made), steps):
        pass
    hearing.hear = None
    jax.block_until_ready([mark.copy for mark in found.timer._marks])  # on a busy machine too
    return found


def saved(found: Glance, folder: Path) -> Capture:
    """With values that are made up."""
    told = found.told()
    assert told is not None
    capturer = Capturer(jax, told[1], folder, {}, {})
    save_made_up(capturer, found.prober.shapes, told[1])
    capturer.finish()
    assert capturer.capture is not None, capturer.failure
    return capturer.capture


def test_the_calls_of_a_program_that_has_ended_are_told() -> None:
    told = glanced(playing).told()
    assert told is not None
    span, probe = told
    (call,) = probe.calls
    assert {leaf.argument: leaf.role for leaf in call.leaves} == {
        "p": "state",
        "key": "state",
        "table": "constant",
        "x": "new",
        "rate": "constant",
    }
    assert span.step_ms > 0 and span.steps > 0


def test_its_step_is_saved_with_values_that_are_made_up(tmp_path: Path) -> None:
    capture = saved(glanced(playing), tmp_path)
    assert capture.made == ("p", "table", "x")
    (call,) = capture.calls
    p, table, x = (call.leaves[n] for n in (0, 2, 3))
    assert 0 < np.abs(value(tmp_path, p)).max() < 1
    assert value(tmp_path, x).tolist() == [0, 0]  # indices of anything
    assert call.leaves[4].number == 0.5
    values = [value(tmp_path, p), jax.random.key(0), value(tmp_path, table), value(tmp_path, x)]
    assert run(tmp_path, call.programs[AS_IT_IS], *values, 0.5)[0].shape == (8,)


def varying(made: Any) -> Any:
    """Each batch has another length."""
    jitted, p = made.jit(lambda p, x: p + x.mean()), jnp.zeros(8)
    for number in range(1000):
        p = jax.block_until_ready(jitted(p, np.ones(4 + 7 * (number % 5), np.float32)))
        yield


def test_any_step_will_do_where_no_other_one_comes(tmp_path: Path) -> None:
    found = glanced(varying)
    told = found.told()
    assert told is not None
    never = replace(told[1], usual_size=range(0))
    capturer = Capturer(jax, never, tmp_path, {}, {}, takes_any=True)
    save_made_up(capturer, found.prober.shapes, never)
    assert capturer.capture is not None and capturer.failure is None


def test_too_few_steps_tell_nothing() -> None:
    assert glanced(playing, 40).told() is None


def test_what_takes_too_much_memory_is_not_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_up, "room_bytes", lambda _: 10)
    with pytest.raises(Unwanted, match="too much memory"):
        saved(glanced(playing), tmp_path)


def test_what_fails_is_no_matter_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError

    monkeypatch.setattr(Shapes, "_shape_of", fails)
    found = glanced(playing)
    told = found.told()
    assert told is not None
    with pytest.raises(Unwanted, match="could not be seen"):
        save_made_up(Capturer(jax, told[1], Path(), {}, {}), found.prober.shapes, told[1])
