import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.observe.digest.program import batch_size, parse, read, size_of_arguments
from perfdoctor.schema.program import Argument, Loop, Program

STEP = """\
#loc1 = loc("params['count']")
#loc2 = loc("params['weight']")
module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(
      %arg0: tensor<i32> {tf.aliasing_output = 0 : i32} loc("params['count']"),
      %arg1: tensor<4xf32> {jax.buffer_donor = true} loc("params['weight']"),
      %arg2: tensor<8x4xui8> loc("inputs"),
      %arg3: tensor<8xf32> loc("labels"))
      -> (tensor<i32> {jax.result_info = "result[0]['count']"},
          tensor<4xf32> {jax.result_info = "result[0]['weight']"},
          tensor<f32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convert %arg2 : (tensor<8x4xui8>) -> tensor<8x4xf32> loc(#loc5)
    %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [1] x [0],
      precision = [DEFAULT, DEFAULT] : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8xf32>
    %2 = stablehlo.subtract %1, %arg3 : tensor<8xf32>
    %3 = stablehlo.multiply %2, %2 : tensor<8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [0]
      : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %7 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %8 = stablehlo.subtract %arg1, %7 : tensor<4xf32>
    %c = stablehlo.constant dense<1> : tensor<i32>
    %9 = stablehlo.add %arg0, %c : tensor<i32>
    return %9, %8, %4 : tensor<i32>, tensor<4xf32>, tensor<f32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc5 = loc("jit(step)/convert_element_type"("/home/me/train.py":5:8 to :34))
"""
DUMPED = """
import sys, jax, jax.numpy as jnp
step = lambda x: jnp.tanh(x)
step.__name__ = sys.argv[1]
jax.jit(step)(jnp.ones(3))
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return parse(STEP, "step")


def test_arguments_have_the_names_that_jax_gave_them(program: Program) -> None:
    names = [argument.name for argument in program.arguments]
    assert names == ["params['count']", "params['weight']", "inputs", "labels"]
    assert program.function == "step"


def test_arguments_have_shapes_and_types(program: Program) -> None:
    kinds = [(argument.shape, argument.dtype) for argument in program.arguments]
    assert kinds == [((), "i32"), ((4,), "f32"), ((8, 4), "ui8"), ((8,), "f32")]


def test_both_marks_of_donation_are_known(program: Program) -> None:
    donated = [argument.donated for argument in program.arguments]
    assert donated == [True, True, False, False]


def test_results_have_shapes_and_types(program: Program) -> None:
    assert program.results == (((), "i32"), ((4,), "f32"), ((), "f32"))


def test_operations_are_counted(program: Program) -> None:
    assert program.operations["stablehlo.dot_general"] == 1
    assert program.operations["stablehlo.subtract"] == 2
    assert program.operations["stablehlo.add"] == 2  # one inside the reduction
    assert program.operations["func.func"] == 1


def test_elements_are_counted_by_their_type(program: Program) -> None:
    assert program.elements_by_dtype["i32"] == 2
    assert program.elements_by_dtype["f32"] == 32 + 3 * 8 + 1 + 1 + 1 + 2 * 4
    assert "ui8" not in program.elements_by_dtype


def test_a_program_of_scalars_and_splats_holds_no_constants(program: Program) -> None:
    assert program.constant_bytes == 0


def test_the_batch_is_the_leading_size_of_the_data(program: Program) -> None:
    assert batch_size(program) == 8


def test_an_argument_without_a_name_gets_a_number() -> None:
    text = "func.func public @main(%arg0: tensor<2xf64>) { return }"
    (argument,) = parse(text, "step").arguments
    assert (argument.dtype, argument.donated) == ("f64", False)
    assert argument.name


def test_a_step_that_the_installed_jax_lowers_can_be_read() -> None:
    def step(params: dict[str, jax.Array], inputs: jax.Array) -> dict[str, jax.Array]:
        return {name: value + inputs.sum() for name, value in params.items()}

    params = {"bias": jnp.zeros(3, jnp.bfloat16)}
    lowered = jax.jit(step, donate_argnums=0).lower(params, jnp.zeros((6, 2), jnp.bfloat16))
    found = parse(lowered.as_text(debug_info=True), "step")
    assert found.arguments == (
        Argument(name="params['bias']", shape=(3,), dtype="bf16", donated=True),
        Argument(name="inputs", shape=(6, 2), dtype="bf16", donated=False),
    )
    assert batch_size(found) == 6


def constant_bytes_of(function: Callable[[jax.Array], jax.Array], *shape: int) -> int:
    """What the installed jax writes into the program of a function of one array."""
    lowered = jax.jit(function).lower(jnp.zeros(shape, jnp.float32))
    return parse(lowered.as_text(debug_info=True), "step").constant_bytes


def test_arrays_that_the_step_closes_over_are_part_of_the_program() -> None:
    table = np.arange(3000, dtype=np.float32).reshape(30, 100)
    assert constant_bytes_of(lambda x: x @ table, 8, 30) == table.nbytes


@pytest.mark.parametrize(("dtype", "size"), [("int8", 1), ("bfloat16", 2), ("int32", 4)])
def test_a_constant_counts_with_the_bytes_of_its_type(dtype: str, size: int) -> None:
    table = jnp.arange(100, dtype=dtype)
    assert constant_bytes_of(lambda x: x + table, 100) == 100 * size


def test_a_constant_of_one_value_takes_no_space() -> None:
    assert constant_bytes_of(lambda x: x + np.ones(1000, np.float32), 1000) == 0


def test_complex_numbers_are_read_as_two_real_ones() -> None:
    table = jnp.asarray([1 + 1j, 2 + 2j], jnp.complex64)

    def step(x: Any) -> Any:
        y = jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return (jnp.fft.fft(y) * table * jnp.zeros(2, jnp.complex64)).real

    lowered = jax.jit(step).lower(jnp.ones(2))
    found = parse(lowered.as_text(debug_info=True), "step")
    assert found.constant_bytes == 2 * 8 and len(found.callbacks) == 1
    assert not any("complex" in name for name in found.elements_by_dtype)


def test_a_constant_inside_a_loop_is_found() -> None:
    table = np.arange(50, dtype=np.float32)

    def step(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: x * table, x)

    assert constant_bytes_of(step, 50) == table.nbytes


def with_arguments(*shapes: tuple[int, ...], results: int = 0) -> Program:
    """The first `results` arguments are replaced by results."""
    return of_data(*((f"x{number}", shape) for number, shape in enumerate(shapes)), results=results)


def of_data(
    *arguments: tuple[str, tuple[int, ...]],
    dtype: str = "f32",
    results: int = 0,
    trips: tuple[int, ...] = (),
) -> Program:
    """Names and shapes; the first `results` of them are replaced by results; loops of `trips`."""
    return Program(
        function="step",
        arguments=tuple(
            Argument(name=name, shape=shape, dtype=dtype, donated=False)
            for name, shape in arguments
        ),
        results=tuple((shape, dtype) for _, shape in arguments)[:results],
        loops=tuple(Loop(trips=each, function="f", file="f.py", line=1) for each in trips),
        operations={},
        elements_by_dtype={},
    )


def test_no_batch_where_the_data_differ_in_their_leading_size() -> None:
    assert batch_size(with_arguments((8, 4), (9,))) is None


def test_no_batch_without_data() -> None:
    assert batch_size(with_arguments()) is None
    assert batch_size(with_arguments((4, 4), (4,), results=2)) is None


def test_scalars_beside_the_data_do_not_matter() -> None:
    assert batch_size(with_arguments((), (8, 4), (8,))) == 8


def test_a_result_takes_the_place_of_one_argument_only() -> None:
    assert batch_size(with_arguments((8, 4), (8, 4), results=1)) == 8


def test_the_newest_dump_of_a_function_is_read(tmp_path: Path) -> None:
    (tmp_path / "jax_ir0001_jit_step_compile.mlir").write_text("not MLIR")
    (tmp_path / "jax_ir0002_jit_step_compile.mlir").write_text(STEP)
    (tmp_path / "jax_ir0003_jit_other_compile.mlir").write_text("not MLIR")
    found = read(tmp_path, "step")
    assert found is not None
    assert len(found.arguments) == 4


@pytest.mark.parametrize("name", ["<lambda>", "step_", "_step", "über"])
def test_a_step_is_found_where_the_installed_jax_dumps_it(tmp_path: Path, name: str) -> None:
    subprocess.run(
        [sys.executable, "-c", DUMPED, name],
        env={**os.environ, "JAX_DUMP_IR_TO": str(tmp_path), "JAX_DUMP_IR_MODES": "stablehlo"},
        check=True,
    )
    found = read(tmp_path, name)
    assert found is not None
    assert (found.function, found.arguments[0].shape) == (name, (3,))


TO_EVALUATE = """\
module @jit_step {
  func.func public @main(%arg0: tensor<4xf32> loc("weight"), %arg1: tensor<8xcomplex<f32>>) ->
      tensor<4xf32> {
    return %arg0 : tensor<4xf32>
  }
}
"""


def test_of_functions_of_one_name_the_one_with_these_arguments_is_read(tmp_path: Path) -> None:
    (tmp_path / "jax_ir0001_jit_step_compile.mlir").write_text(STEP)
    (tmp_path / "jax_ir0002_jit_step_compile.mlir").write_text(TO_EVALUATE)
    assert (size_of_arguments(STEP), size_of_arguments(TO_EVALUATE)) == (4 + 16 + 32 + 32, 16 + 64)
    for size, arguments in ((84, 4), (80, 2), (5, 2), (None, 2)):
        found = read(tmp_path, "step", argument_bytes=size)
        assert found is not None and len(found.arguments) == arguments


def test_the_arguments_of_a_program_that_jax_lowers_take_what_xla_says() -> None:
    def step(state: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        return batch.astype(jnp.float32) @ state["w"]

    lowered = jax.jit(step).lower({"w": jnp.ones((3, 5))}, jnp.ones((7, 3), jnp.int8))
    said = lowered.compile().memory_analysis().argument_size_in_bytes
    assert size_of_arguments(lowered.as_text()) == said == 3 * 5 * 4 + 7 * 3


def test_no_program_where_none_was_dumped(tmp_path: Path) -> None:
    assert read(tmp_path, "step") is None


def test_a_network_that_the_step_only_reads_is_no_data() -> None:
    network = [("critic[0][0]", (64, 384)), ("critic[0][1]", (384,)), ("critic[1][0]", (384, 1))]
    assert batch_size(of_data(*network, ("noise", (4, 32)))) == 4
    assert batch_size(of_data(*network)) is None


def test_the_parts_of_a_batch_have_one_leading_size() -> None:
    batch = [("batch['image']", (16, 8, 8)), ("batch['label']", (16,)), ("batch['id']", (16,))]
    assert batch_size(of_data(*batch)) == 16
    assert batch_size(of_data(*batch, ("table", (5000, 8)))) is None


@pytest.mark.parametrize("size", [2, 4])
def test_a_random_key_is_no_data(size: int) -> None:
    assert batch_size(of_data(("key", (size,)), ("tokens", (8, 32)), dtype="ui32")) == 8
    assert batch_size(of_data(("key", (size,)), dtype="ui32")) is None


def test_an_axis_that_the_program_loops_over_is_no_batch() -> None:
    trajectory = [("trajectory[0]", (100, 2, 4)), ("trajectory[1]", (100, 2))]
    assert batch_size(of_data(*trajectory, trips=(100,))) == 2
    assert batch_size(of_data(*trajectory, trips=(7,))) == 100
    microbatches = [("x", (4, 32, 8)), ("y", (4, 32))]
    assert batch_size(of_data(*microbatches, trips=(4,))) == 32


def test_examples_that_are_mapped_one_by_one_are_a_batch() -> None:
    mapped = [("x", (64, 8)), ("y", (64,))]
    assert batch_size(of_data(*mapped, trips=(64,))) is None  # or 64: not sure, so not told


def test_under_pmap_the_batch_is_what_all_devices_get_together() -> None:
    state, batch = [("params['w']", (4, 16, 8))], [("x", (4, 12, 16)), ("y", (4, 12))]
    assert batch_size(of_data(*state, *batch, results=1), devices=4) == 48
    assert batch_size(of_data(*state, *batch, results=1), devices=2) == 4
    one = [("params['w']", (1, 16, 8)), ("x", (1, 32, 16)), ("y", (1, 32))]
    assert batch_size(of_data(*one, results=1)) == 32
    assert batch_size(of_data(("w", (16, 8)), *one[1:], results=1)) == 1


@pytest.mark.parametrize("shape", [(32, 8), (100, 32, 8), (4, 8, 3)])
def test_data_of_a_batch_hold_it_along_their_first_axes(shape: tuple[int, ...]) -> None:
    held = of_data(("x", shape), ("rate", ()), ("positions", (64, 2)))
    assert [each.name for each in held.of_batch(32)] == ["x"]


def test_a_table_as_wide_as_the_batch_is_large_is_no_part_of_it() -> None:
    seen = of_data(("x", (64, 8)), ("y", (64,)), ("table", (5000, 64)), ("pairs", (8, 8)))
    assert [each.name for each in seen.of_batch(64)] == ["x", "y"]
