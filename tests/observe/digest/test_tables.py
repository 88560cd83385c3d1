"""Tables of which rows are looked up, in programs that the installed jax lowers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from perfdoctor.observe.digest.program import parse
from perfdoctor.schema.program import Program, Table

ROWS, WIDTH, IDS = 5000, 8, 64


def lowered(step: Callable[..., Any], *shapes: tuple[tuple[int, ...], str]) -> Program:
    """Its program, as a dump has it."""
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    return parse(jax.jit(step).lower(*arguments).as_text(), "step")


TABLE, INDEX = ((ROWS, WIDTH), "float32"), ((4, 16), "int32")


def loss(table: Any, ids: Any) -> Any:
    return jnp.square(table[ids]).sum()


def swept(table: Any, ids: Any) -> Any:
    """By the derivative with respect to all of it."""
    return table - 0.1 * jax.grad(loss)(table, ids)


def of_rows(table: Any, ids: Any) -> Any:
    """By the derivative with respect to what is used."""
    rows = table[ids]
    slope = jax.grad(lambda rows: jnp.square(rows).sum())(rows)
    return table.at[ids].add(-0.1 * slope)


def test_a_table_that_is_computed_as_a_whole_is_told_from_one_that_is_not() -> None:
    [table] = lowered(swept, TABLE, INDEX).tables
    assert (table.shape, table.looked_up) == ((ROWS, WIDTH), IDS)
    assert table.computed >= 2
    assert lowered(of_rows, TABLE, INDEX).tables == (
        Table(shape=(ROWS, WIDTH), looked_up=IDS, computed=0),
    )


@pytest.mark.parametrize(
    "step",
    [lambda table, ids: table[:99] * 2 + ids.sum(), lambda table, ids: table[ids, 0].sum()],
    ids=["nothing is looked up", "single elements are"],
)
def test_what_has_no_rows_looked_up_and_is_not_computed_is_no_table(
    step: Callable[..., Any],
) -> None:
    assert lowered(step, TABLE, INDEX).tables == ()


def test_what_is_only_computed_may_be_a_table_that_another_program_looks_up() -> None:
    def double(table: Any) -> Any:
        return table * 2

    assert lowered(double, TABLE).tables == (Table(shape=(ROWS, WIDTH), looked_up=0, computed=1),)
    assert lowered(double, ((8, ROWS), "float32")).tables == ()


@pytest.mark.parametrize(
    ("step", "flattened"),
    [
        (lambda x: x.reshape(-1, 3).sum(), True),
        (lambda x: x.sum() + x.reshape(-1, 3).sum(), False),
        (lambda x: x.reshape(4, -1).sum(), False),
        (lambda x: (x + 1).reshape(-1, 3).sum(), False),
    ],
)
def test_an_array_is_flattened_if_all_that_is_done_with_it_is_that(
    step: Callable[..., Any], flattened: bool
) -> None:
    program = lowered(step, ((4, 5, 3), "float32"))
    assert program.arguments[0].flattened is flattened
    assert program.flattens is flattened
