"""The programs that are saved of a call."""

from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from perfdoctor.observe.agent import variants
from perfdoctor.schema.capture import AS_IT_IS, AT_ONCE, COPIES, MANIFEST
from tests.observe.agent.test_capture import SHAPE, captured, run, saved, training


def call_back(made: Any) -> Any:
    """A step that prints."""

    def step(p: Any) -> Any:
        jax.debug.callback(lambda _: None, p)
        return p + 1

    jitted, p = made.jit(step), jnp.zeros(SHAPE)
    while True:
        p = jitted(p)
        yield


def test_what_calls_back_is_saved_without_callbacks(tmp_path: Path) -> None:
    found = saved(call_back, tmp_path)
    (call,) = found.calls
    assert list(call.programs) == ["no-callbacks"]
    assert "calls back" in found.failures[AS_IT_IS]
    (p,) = run(tmp_path, call.programs["no-callbacks"], jnp.zeros(SHAPE))
    assert float(p[0]) == 1.0


CHECKED = checkify.float_checks | checkify.index_checks


def check_itself(made: Any) -> Any:
    """A step that searches the results of its operations for NaNs, in a loop as well."""

    def body(p: Any, row: Any) -> Any:
        return jnp.tanh(p * row[0]), row[p.astype(int) % 8].sum()

    def step(p: Any, rows: Any) -> Any:
        p, sums = jax.lax.scan(body, p, rows)
        return p + 1, sums.sum()

    def checked(p: Any, rows: Any) -> Any:
        return checkify.checkify(step, errors=CHECKED)(p, rows)

    jitted, p, rows = made.jit(checked), jnp.zeros(SHAPE), jnp.ones((5, 8))
    while True:
        error, (p, _) = jitted(p, rows)
        error.throw()
        yield


def test_what_checks_itself_is_saved_without_its_checks(tmp_path: Path) -> None:
    (call,) = saved(check_itself, tmp_path).calls
    assert {AS_IT_IS, "unchecked"} <= set(call.programs)
    given = jnp.zeros(SHAPE), jnp.ones((5, 8))
    *errors, p, total = run(tmp_path, call.programs[AS_IT_IS], *given)
    *none, p_now, total_now = run(tmp_path, call.programs["unchecked"], *given)
    assert len(errors) == len(none) > 2
    assert not any(each.any() for each in none)
    assert [p.tolist(), float(total)] == [p_now.tolist(), float(total_now)]


def test_products_of_high_precision_are_saved_in_the_usual_one_too(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, w: jnp.dot(p, w, precision="highest"))
        p, w = jnp.ones(SHAPE), jnp.eye(8)
        while True:
            p = step(p, w)
            yield

    (call,) = saved(program, tmp_path).calls
    assert set(call.programs) == {AS_IT_IS, AT_ONCE, "inexact"}
    (p,) = run(tmp_path, call.programs["inexact"], jnp.ones(SHAPE), jnp.eye(8))
    assert float(p[0]) == 1.0


def test_what_numpy_holds_in_double_precision_is_narrow_in_single_precision(
    tmp_path: Path, wide: None
) -> None:
    weights = np.linspace(0.0, 1.0, 8)

    def program(made: Any) -> Any:
        step, p = made.jit(lambda p: p * weights / np.sqrt(2.0)), jnp.ones(SHAPE)
        while True:
            p = step(p)
            yield

    found = saved(program, tmp_path)
    assert found.failures == {}
    (p,) = run(tmp_path, found.calls[0].programs["float32"], jnp.ones(SHAPE, jnp.float32))
    assert p.dtype == "float32"
    assert np.allclose(p, weights / np.sqrt(2.0))


def playing(made: Any) -> Any:
    """A step that makes its own data."""

    def step(p: Any, key: Any) -> Any:
        key, sub = jax.random.split(key)
        return p + jax.random.normal(sub, SHAPE).sum(), key

    jitted = made.jit(step)
    p, key = jnp.zeros(SHAPE), jax.random.key(0)
    while True:
        p, key = jitted(p, key)
        yield


def test_a_step_that_makes_its_own_data_is_saved_several_times_at_once(tmp_path: Path) -> None:
    (call,) = saved(playing, tmp_path).calls
    assert set(call.programs) == {AS_IT_IS, AT_ONCE}
    p, key = run(tmp_path, call.programs[AT_ONCE], jnp.zeros(SHAPE), jax.random.key(0))
    assert p.shape == SHAPE and key.shape == ()
    bodies = {
        name: str(jax.export.deserialize(bytearray((tmp_path / file).read_bytes())).mlir_module())
        for name, file in call.programs.items()
    }
    wide = f"tensor<{COPIES}x{SHAPE[0]}xf32>"
    assert wide in bodies[AT_ONCE] and wide not in bodies[AS_IT_IS]


def test_a_large_state_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MOST_COPIED_BYTES", 0)
    (call,) = saved(playing, tmp_path).calls
    assert set(call.programs) == {AS_IT_IS}


def test_what_can_not_be_exported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> bytes:
        raise ValueError("\n  no such operation\nand more")

    monkeypatch.setattr(variants, "exported", fails)
    capturer = captured(training, tmp_path)
    assert capturer.failure == "ValueError:   no such operation"
    assert capturer.done.is_set()
    assert not (tmp_path / MANIFEST).exists()


def test_data_that_happen_to_stay_the_same_grow_with_their_batch(tmp_path: Path) -> None:
    """The rewards are a new array in each step, and all 1; the weights are 8 wide as well."""

    def program(made: Any) -> Any:
        step = made.jit(lambda w, x, rewards: w + (x @ w) @ rewards)
        w, random = jnp.ones(SHAPE), np.random.default_rng(0)
        while True:
            w = step(w, random.standard_normal((8, 8), np.float32), np.ones(8, np.float32))
            yield

    found = saved(program, tmp_path)
    (call,) = found.calls
    assert [leaf.role for leaf in call.leaves] == ["state", "new", "constant"]
    file = call.programs["batch-8-to-32"]
    larger = run(tmp_path, file, jnp.ones(8), np.ones((32, 8), np.float32), np.ones(32, np.float32))
    assert larger[0].shape == SHAPE and float(larger[0][0]) == 1 + 8 * 32


def two_networks(multiplies: bool) -> Any:
    """A step of two calls; only the first one takes new data. The other one computes on examples
    that it draws itself, or applies an update.
    """

    def program(made: Any) -> Any:
        judge = made.jit(lambda p, x: p + jnp.tanh(x @ jnp.ones((8, 8))).sum())
        noise = jnp.ones((8, 8))
        draw = made.jit(lambda q: q + (jnp.tanh(noise @ noise).sum() if multiplies else 1.0))
        p, q = jnp.zeros(SHAPE), jnp.zeros(SHAPE)
        while True:
            p = judge(p, np.random.default_rng().random((8, 8), np.float32))
            q = draw(q)
            yield

    return program


@pytest.mark.parametrize("multiplies", [True, False])
def test_a_larger_batch_is_tried_where_all_calls_grow_that_multiply(
    tmp_path: Path, multiplies: bool
) -> None:
    calls = saved(two_networks(multiplies), tmp_path).calls
    assert len(calls) == 2
    assert any("batch-8-to-32" in call.programs for call in calls) is not multiplies
