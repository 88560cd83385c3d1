"""A function that is traced as one program."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from perfdoctor.observe.agent.outline import Outline
from perfdoctor.observe.agent.whole_program import replaced_by, traced_whole
from tests.observe.agent.test_whole import PARAMS, arguments, train_step


class Trainer:
    """Keeps its state in itself."""

    def __init__(self) -> None:
        self.params = jax.tree.map(jnp.asarray, PARAMS)
        self.steps = 0

    def step(self, x: Any) -> Any:
        self.params, loss = train_step(self.params, x)
        self.steps += 1
        return loss


def test_what_a_function_changes_in_its_object_is_computed_and_the_object_left() -> None:
    trainer = Trainer()
    before = dict(trainer.params)
    whole = traced_whole(jax, arguments(Trainer.step, self=trainer, x=jnp.ones((8, 4))))
    assert [aval.shape for aval in whole.closed.out_avals].count((4, 4)) == 1
    assert trainer.params == before and all(
        isinstance(each, jax.Array) and not isinstance(each, jax.core.Tracer)
        for each in trainer.params.values()
    )


def test_objects_of_a_script_that_has_ended_are_the_programs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python takes the `__file__` of the script away before its last callbacks."""
    monkeypatch.setattr(Trainer, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    whole = traced_whole(jax, arguments(Trainer.step, self=Trainer(), x=jnp.ones((8, 4))))
    assert [aval.shape for aval in whole.closed.out_avals].count((4, 4)) == 1


def test_what_it_takes_from_around_it_is_an_argument_too() -> None:
    table = jnp.ones((16, 4))

    def look_up(index: Any) -> Any:
        return table[index] * 2

    whole = traced_whole(jax, arguments(look_up, index=jnp.arange(3)))
    assert sorted(tuple(leaf.shape) for leaf in whole.leaves) == [(3,), (16, 4)]


def test_all_kinds_of_parameters_are_passed() -> None:
    def many(a: Any, *rest: Any, scale: float, **more: Any) -> Any:
        return a * scale + sum(rest) + more["bias"]

    kept = arguments(
        many, a=jnp.ones(3), rest=(jnp.ones(3),), scale=2.0, more={"bias": jnp.ones(3)}
    )
    whole = traced_whole(jax, kept)
    assert len(whole.leaves) == 3 and len(whole.closed.out_avals) == 1


def test_of_two_results_alike_each_replaces_one_argument() -> None:
    aval = jax.ShapeDtypeStruct((2,), jnp.float32)
    leaf = Outline((2,), jnp.dtype("float32"), weak_type=False)
    other = Outline((3,), jnp.dtype("float32"), weak_type=False)
    assert replaced_by([leaf, other, leaf, leaf], [aval, aval]) == [0, None, 1, None]


def test_a_module_is_no_object_of_the_programs(tmp_path: Path) -> None:
    del tmp_path
    whole = traced_whole(jax, arguments(lambda m, x: m.numpy.tanh(x), m=jax, x=jnp.ones(2)))
    assert len(whole.leaves) == 1 and sys.modules["jax"] is jax


def test_the_functions_and_operations_that_it_calls_are_named() -> None:
    @jax.jit  # type: ignore[untyped-decorator]
    def gradients(x: Any) -> Any:
        return 2 * x

    def step(x: Any) -> Any:
        return x - jnp.where(x > 0, gradients(x), 0)

    whole = traced_whole(jax, arguments(step, x=jnp.ones(4)))
    assert {"gradients", "mul", "sub"} <= set(whole.holds)
