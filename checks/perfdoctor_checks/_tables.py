"""Large tables of which a step uses few rows and works on all."""

from perfdoctor import Fix, Gain, Observation, Program, Table, spared
from perfdoctor_checks._limits import CLASSES, GOOD_PART, MOSTLY

ROWS_ONLY = Fix(
    summary="update only the rows that a step uses, or have no more rows than there are words",
    how="rows = table[ids]; grads = jax.grad(loss)(rows); table = table.at[ids].add(-rate * grads)",
    changes_results="training",
)
"""The derivative with respect to the rows has their size, that with respect to the table has the
table's, and all of its optimizer's state is computed anew."""


def swept_table(observation: Observation, program: Program) -> tuple[Table, float] | None:
    """A table whose rows are computed in each step though few are used, where that takes the larger
    part of the device's time; and that part. Not one that a layer computes with as a whole.
    """
    executable = observation.executable
    whole = {size for layer in program.layers for size in (layer.inputs, layer.outputs)}
    for table in program.tables:
        rows = table.shape[0]
        taken = executable.axis_shares.get(rows, 0.0) if executable is not None else 0.0
        few = table.looked_up < GOOD_PART * rows
        if rows > CLASSES and few and table.computed and rows not in whole and taken >= MOSTLY:
            return table, taken
    return None


def swept(observation: Observation, program: Program) -> list[tuple[str, list[Fix]]]:
    """What is beyond the bound, and what to do."""
    found = swept_table(observation, program)
    if found is None:
        return []
    table, taken = found
    size = " by ".join(map(str, table.shape))
    text = (
        f"a table of {size}, of which a step uses {table.looked_up} rows and computes all: "
        f"{taken:.0%} of the device's time"
    )
    return [(text, [ROWS_ONLY])]


def without_sweeping(observation: Observation, program: Program) -> Gain | None:
    """The gain if only the rows in use were computed: half of that at least, and at most all that
    operations on the whole table take.
    """
    found, steps = swept_table(observation, program), observation.steps
    if found is None or steps is None or steps.time_ms <= 0:
        return None
    table, taken = found
    taken_ms = taken * min(steps.time_ms, steps.device_busy_ms)
    likely_ms = taken_ms * (1 - table.looked_up / table.shape[0])
    return spared(steps.time_ms, likely_ms, likely_ms / 2, taken_ms)
