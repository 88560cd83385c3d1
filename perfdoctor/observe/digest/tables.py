"""Tables of which a step looks up rows, and whether it works on all of them besides."""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from perfdoctor.observe.digest.executable import LONG
from perfdoctor.observe.digest.operations import below, sizes
from perfdoctor.schema.program import Argument, Table

ARITHMETIC = frozenset(
    f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide", "sqrt", "rsqrt")
)
"""What optimizers do to each element of their state."""


def tables_of(module: Any, arguments: Sequence[Argument]) -> tuple[Table, ...]:
    """The arguments of which rows are looked up, each shape once; and those with a long axis that
    are computed as a whole, since another program of the step may look up their rows.
    """
    looked_up: Counter[tuple[int, ...]] = Counter()
    computed: Counter[tuple[int, ...]] = Counter()
    for operation in below(module):
        if operation.name == "stablehlo.gather":
            looked_up[shape_of(operation.operands[0])] += rows_read(operation)
        elif operation.name in ARITHMETIC:
            computed[shape_of(operation.results[0])] += 1
    shapes = dict.fromkeys(argument.shape for argument in arguments)
    return tuple(
        Table(shape=shape, looked_up=looked_up[shape], computed=computed[shape])
        for shape in shapes
        if looked_up[shape] or (computed[shape] and shape and shape[0] > LONG)
    )


def rows_read(gather: Any) -> int:
    """How many rows a lookup reads; 0 if it reads something else."""
    table, piece = shape_of(gather.operands[0]), list(gather.attributes["slice_sizes"])
    if len(table) < 2 or tuple(piece) != (1, *table[1:]):
        return 0
    return prod(shape_of(gather.results[0])) // max(1, prod(table[1:]))


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor."""
    return tuple(sizes(value))
