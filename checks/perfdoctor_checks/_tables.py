"""Large tables of which a step uses few rows and works on all."""

from perfdoctor import Fix, Gain, Observation, Program, Table, spared
from perfdoctor_checks._limits import CLASSES, GOOD_PART

ROWS_ONLY = Fix(
    summary="update only the rows that a step uses, or have no more rows than there are words",
    how="rows = table[ids]; grads = jax.grad(loss)(rows); table = table.at[ids].add(-rate * grads)",
    changes_results="training",
)
"""The derivative with respect to the rows has their size, that with respect to the table has the
table's, and all of its optimizer's state is computed anew."""


def swept_tables(observation: Observation, program: Program) -> dict[Table, float]:
    """Tables whose rows are computed in each step though few are used, where they take a good part
    of the device's time together; and the part of each. No layer computes with them as a whole.
    """
    told = observation.executable.axis_shares if observation.executable is not None else {}
    whole = {size for layer in program.layers for size in (layer.inputs, layer.outputs)}
    found = {
        table: told.get(table.shape[0], 0.0)
        for table in program.tables
        if table.shape[0] > CLASSES
        and table.computed
        and table.looked_up < GOOD_PART * table.shape[0]
        and table.shape[0] not in whole
    }
    return found if taken_by(found) >= GOOD_PART else {}


def swept(observation: Observation, program: Program) -> list[tuple[str, list[Fix]]]:
    """What is beyond the bound, and what to do."""
    found = swept_tables(observation, program)
    if not found:
        return []
    table = max(found, key=found.__getitem__)
    size = " by ".join(map(str, table.shape))
    others = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
    text = (
        f"a table of {size}, of which a step uses {table.looked_up} rows and computes all{others}: "
        f"{taken_by(found):.0%} of the device's time"
    )
    return [(text, [ROWS_ONLY])]


def taken_by(tables: dict[Table, float]) -> float:
    """The part of the device's time that they take together; tables of one length share it."""
    return min(1.0, sum({table.shape[0]: taken for table, taken in tables.items()}.values()))


def without_sweeping(observation: Observation, program: Program) -> Gain | None:
    """The gain if only the rows in use were computed: half of that at least, and at most all that
    operations on the whole tables take.
    """
    found, steps = swept_tables(observation, program), observation.steps
    if not found or steps is None or steps.time_ms <= 0:
        return None
    taken_ms = taken_by(found) * min(steps.time_ms, steps.device_busy_ms)
    used = max(table.looked_up / table.shape[0] for table in found)
    likely_ms = taken_ms * (1 - used)
    return spared(steps.time_ms, likely_ms, likely_ms / 2, taken_ms)
