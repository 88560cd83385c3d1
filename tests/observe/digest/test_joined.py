"""What all programs of a step do together, in programs that the installed jax lowers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from msgspec.structs import replace

from perfdoctor.observe.digest.joined import (
    axis_shares,
    convolutions_share,
    joined,
    program_of,
    records_of,
)
from perfdoctor.observe.digest.program import parse
from perfdoctor.protocol import EXECUTABLES
from perfdoctor.schema.program import Program, Table
from perfdoctor.schema.recording import Recording
from tests.observe.digest.test_cost import call, executable, run, steps
from tests.observe.digest.test_executable import CONVOLVING, SOFTMAX, record

TABLE, IDS = jax.ShapeDtypeStruct((5000, 8), "float32"), jax.ShapeDtypeStruct((64,), "int32")


def loss(table: Any, ids: Any) -> Any:
    return jnp.square(table[ids] @ jnp.ones((8, 4))).sum()


def gradients(table: Any, ids: Any) -> Any:
    return jax.grad(loss)(table, ids)


def update(table: Any, slope: Any) -> Any:
    return table - 0.1 * slope


GRADIENTS, UPDATE = (
    jax.jit(gradients).lower(TABLE, IDS).as_text(),
    jax.jit(update).lower(TABLE, TABLE).as_text(),
)


def test_a_table_may_be_looked_up_by_one_program_and_computed_by_another() -> None:
    for main, other in ((GRADIENTS, UPDATE), (UPDATE, GRADIENTS)):
        both = joined(parse(main, "main"), [(1.0, parse(other, "other"))])
        [table] = both.tables
        assert (table.shape, table.looked_up) == ((5000, 8), 64)
        assert table.computed >= 2
        assert both.arguments == parse(main, "main").arguments


def test_what_no_program_of_the_step_looks_up_is_no_table() -> None:
    alone = parse(UPDATE, "update")
    assert alone.tables == (Table(shape=(5000, 8), looked_up=0, computed=2),)
    assert joined(alone, []) == replace(alone, tables=())


def test_a_layer_that_several_programs_compute_is_one() -> None:
    one = parse(GRADIENTS, "gradients")
    both = joined(one, [(2.0, one)])
    assert [each.written for each in both.layers] == [each.written for each in one.layers]
    assert [each.executed for each in both.layers] == [3 * each.executed for each in one.layers]
    assert [each.flops for each in both.layers] == [3 * each.flops for each in one.layers]


def test_one_line_for_two_numbers_of_rows_is_two_layers_of_a_program() -> None:
    def twice(x: Any, w: Any) -> Any:
        return sum((part @ w).sum() for part in (x, x[:8]))

    shapes = jax.ShapeDtypeStruct((64, 8), "float32"), jax.ShapeDtypeStruct((8, 4), "float32")
    one = parse(jax.jit(twice).lower(*shapes).as_text(debug_info=True), "twice")
    assert sorted(each.rows for each in one.layers) == [8, 64]
    assert joined(one, []).layers == one.layers
    assert sorted(each.rows for each in joined(one, [(1.0, one)]).layers) == [8, 64]


def test_a_step_whose_main_function_was_not_called_in_each_is_read(dumps: Recording) -> None:
    dumps.step_calls = None
    found = program_of(steps({"update": 0.2, "gradients": 1.0}), dumps, {})
    assert found is not None and [table.looked_up for table in found.tables] == [64]


def test_layers_count_as_often_as_their_program_is_run() -> None:
    main, other = parse(UPDATE, "update"), parse(GRADIENTS, "gradients")
    once, often = joined(main, [(1.0, other)]).layers, joined(main, [(4.0, other)]).layers
    assert [each.flops for each in often] == [4 * each.flops for each in once] != []
    assert [each.executed for each in often] == [4 * each.executed for each in once]
    both = joined(main, [(4.0, other)]).operations
    assert both["stablehlo.gather"] == other.operations["stablehlo.gather"]
    assert both["stablehlo.subtract"] == main.operations["stablehlo.subtract"]


@pytest.fixture
def dumps(tmp_path: Path) -> Recording:
    """A run whose step is two functions, as jax dumps them."""
    for number, (name, text) in enumerate((("gradients", GRADIENTS), ("update", UPDATE))):
        (tmp_path / f"jax_ir{number}_jit_{name}_compile.mlir").write_text(text)
    calls = call("gradients"), call("update")
    recording = run(executable("gradients", 1.0), executable("update", 1.0), calls=calls)
    recording.programs = str(tmp_path)
    return recording


OFTEN = steps({"update": 1.0, "gradients": 1.0})


def test_the_programs_of_all_calls_of_a_step_are_read(dumps: Recording) -> None:
    missing: dict[str, str] = {}
    found = program_of(OFTEN, dumps, missing)
    assert found is not None and found.function == "update"
    assert [table.looked_up for table in found.tables] == [64]
    assert missing == {}
    assert [each.name for each in records_of(OFTEN, dumps)] == ["jit_update", "jit_gradients"]


def test_one_that_can_not_be_read_is_told_and_the_others_are(dumps: Recording) -> None:
    [broken] = Path(dumps.programs).glob("*gradients*")
    broken.write_text("no program")
    missing: dict[str, str] = {}
    found = program_of(OFTEN, dumps, missing)
    assert isinstance(found, Program) and found.tables == ()
    assert "gradients can't be read" in missing["layers"]
    [broken] = Path(dumps.programs).glob("*update*")
    broken.write_text("no program")
    assert program_of(OFTEN, dumps, missing) is None
    assert "update can't be read" in missing["program"]


def test_time_is_counted_in_the_program_in_which_it_was_taken(tmp_path: Path) -> None:
    (tmp_path / EXECUTABLES).mkdir()
    (tmp_path / EXECUTABLES / "0.txt").write_text(SOFTMAX)
    (tmp_path / EXECUTABLES / "1.txt").write_text(
        "HloModule jit_other\n  %fusion.1 = f32[4]{0} add(%p)"
    )
    records = [record("jit_step"), record("jit_other", "1.txt")]
    took_ms = {"jit_step": {"fusion.1": 6.0, "add.1": 2.0}, "jit_other": {"fusion.1": 4.0}}
    assert axis_shares(tmp_path, records, took_ms) == {50_000: pytest.approx(0.5)}
    assert axis_shares(tmp_path, records, {}) == {}
    (tmp_path / EXECUTABLES / "1.txt").write_text(CONVOLVING)
    took_ms["jit_other"] = {"ynn_fusion.11": 4.0}
    assert convolutions_share(tmp_path, records, took_ms) == pytest.approx(1 / 3)
