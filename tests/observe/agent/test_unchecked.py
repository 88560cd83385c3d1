"""What `checkify` checks, left out."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify
from jax.extend.core import jaxpr_as_fun

from perfdoctor.observe.agent.unchecked import errors_among, unchecked

ALL = checkify.float_checks | checkify.index_checks
GIVEN = jnp.ones((4, 8)), jnp.ones((5, 8))


def step(p: Any, rows: Any) -> Any:
    """Operations and rows of a table, in a loop."""

    def body(p: Any, row: Any) -> Any:
        return jnp.tanh(p * row), row[p.astype(int) % 8].sum()

    return jax.lax.scan(body, p, rows)


def traced(function: Any) -> Any:
    """As capture has it traced."""
    return jax.jit(function).trace(*GIVEN)


def flops(function: Any) -> float:
    """Of what XLA compiles."""
    return float(jax.jit(function).lower(*GIVEN).compile().cost_analysis()["flops"])


def test_xla_drops_the_checks_in_loops_as_well() -> None:
    checked = checkify.checkify(step, errors=ALL)
    found = traced(checked)
    places = errors_among(jax, found.out_info)
    without = jaxpr_as_fun(unchecked(jax, found.jaxpr, places))
    assert flops(without) == pytest.approx(flops(step))
    assert flops(checked) > 1.2 * flops(step)
    *errors, last, sums = without(*GIVEN)
    assert not any(each.any() for each in errors)
    expected = step(*GIVEN)
    assert last.tolist() == expected[0].tolist() and sums.tolist() == expected[1].tolist()


def test_errors_are_told_wherever_they_are_among_the_results() -> None:
    def between(p: Any, rows: Any) -> Any:
        error, (last, sums) = checkify.checkify(step, errors=checkify.nan_checks)(p, rows)
        return {"a": last, "b": [error, sums]}

    results = traced(between).out_info
    count = len(jax.tree_util.tree_leaves(results["b"][0]))
    assert count > 0
    assert errors_among(jax, results) == tuple(range(1, 1 + count))
    assert errors_among(jax, traced(step).out_info) == ()


def test_who_checks_nothing_needs_no_checkify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax.experimental.checkify")
    assert errors_among(jax, (1, 2)) == ()
