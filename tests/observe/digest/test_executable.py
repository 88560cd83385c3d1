from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.agent.executables import account
from perfdoctor.observe.digest.executable import (
    OPERATION,
    axes_ms,
    convolutions_in,
    executable_of,
    hashed,
    is_of,
    size,
)
from perfdoctor.schema.program import Executable
from perfdoctor.schema.recording import ExecutableRecord, Recording

TEXT = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY %main.12 (p.1: f32[64,64], x.1: f32[8,64]) -> (f32[64,64], f32[]) {
  %p.1 = f32[64,64]{1,0} parameter(0), metadata={op_name="p"}
  %x.1 = f32[8,64]{1,0} parameter(1), metadata={op_name="x"}
  %copy.3 = f32[8,64]{0,1} copy(%x.1)
  %copy = bf16[4,2]{1,0:T(8,128)} copy(%half), metadata={op_name="copy"}
  %copy-start.1 = (f32[9]{0}, f32[9]{0}, u32[]) copy-start(%x.1)
  %call.1 = f32[8,64]{1,0} custom-call(%copy.3, %p.1), custom_call_target="__cublas$gemm"
  %call.2 = f32[8,64]{1,0} custom-call(%call.1, %p.1), custom_call_target="__cublas$gemm"
  %call.3 = f32[] custom-call(%call.2), custom_call_target="xla_ffi_python_cpu_callback"
  ROOT %tuple = (f32[64,64]{1,0}, f32[]) tuple(%p.1, %call.3)
}
"""


def record(name: str = "jit_step", file: str = "0.txt", **sizes: Any) -> ExecutableRecord:
    nothing = dict.fromkeys(("argument_bytes", "output_bytes", "alias_bytes", "temp_bytes"), 0)
    cost = {"flops": 1.0, "bytes_accessed": 2.0}
    return ExecutableRecord(name=name, file=file, **{**nothing, **cost, **sizes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """In which the agent left two programs."""
    (tmp_path / "executables").mkdir()
    (tmp_path / "executables" / "0.txt").write_text(TEXT)
    (tmp_path / "executables" / "1.txt").write_text("HloModule jit_other")
    return tmp_path


def found(folder: Path, function: str, *records: ExecutableRecord) -> Executable | None:
    return executable_of(folder, function, Recording(start_ns=0, executables=list(records)))


def test_the_account_of_xla_is_kept(folder: Path) -> None:
    sizes: dict[str, Any] = {
        "argument_bytes": 4,
        "output_bytes": 3,
        "alias_bytes": 2,
        "temp_bytes": 1,
    }
    seen = found(folder, "step", record(**sizes))
    assert seen is not None
    assert (seen.flops, seen.bytes_accessed) == (1.0, 2.0)
    assert {name: getattr(seen, name) for name in sizes} == sizes


def test_calls_of_libraries_are_counted_by_their_target(folder: Path) -> None:
    seen = found(folder, "step", record())
    assert seen is not None
    assert seen.custom_calls == {"__cublas$gemm": 2, "xla_ffi_python_cpu_callback": 1}


def test_plain_copies_are_added_up(folder: Path) -> None:
    seen = found(folder, "step", record())
    assert seen is not None
    assert seen.copied_bytes == 8 * 64 * 4 + 4 * 2 * 2


def test_a_program_that_calls_and_copies_nothing(folder: Path) -> None:
    seen = found(folder, "other", record("jit_other", "1.txt"))
    assert seen is not None
    assert (seen.custom_calls, seen.copied_bytes) == ({}, 0)


def test_of_several_programs_the_first_of_its_name_is_taken(folder: Path) -> None:
    records = [record("jit_other", "1.txt"), record(flops=7.0), record(flops=8.0)]
    seen = found(folder, "step", *records)
    assert seen is not None
    assert seen.flops == 7.0


def test_no_program_where_none_of_its_name_lives(folder: Path) -> None:
    assert found(folder, "step") is None
    assert found(folder, "step", record("jit_stepping"), record("step")) is None


@pytest.mark.parametrize(
    ("function", "name"),
    [("step", "jit_step"), ("<lambda>", "jit__lambda"), ("_mean_", "jit__mean")],
)
def test_xla_names_a_program_by_its_function(function: str, name: str) -> None:
    assert is_of(record(name), function)


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("f32", "8,64", 2048),
        ("bf16", "4,2", 16),
        ("f8e4m3fn", "10", 10),
        ("pred", "7", 7),
        ("s4", "10", 10),
        ("c64", "", 8),
        ("u8", "0,5", 0),
        ("f8E4M3FN", "10", 10),  # in MLIR's words
        ("f8E5M2", "3,5", 15),
        ("f8E4M3B11FNUZ", "2", 2),
        ("f4E2M1FN", "8", 8),
        ("complex<f32>", "3", 24),
        ("ui32", "2", 8),
        ("i1", "7", 7),
    ],
)
def test_the_size_of_an_array(dtype: str, shape: str, expected: int) -> None:
    assert size(dtype, shape) == expected


@given(st.lists(st.integers(0, 100), max_size=4))
def test_a_wider_type_takes_more(shape: list[int]) -> None:
    text = ",".join(map(str, shape))
    assert size("f64", text) == 2 * size("f32", text) == 4 * size("bf16", text)


def test_a_lambda_that_the_installed_jax_compiles_is_found(tmp_path: Path) -> None:
    compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4))).compile()
    seen, module = account(compiled.runtime_executable())
    (tmp_path / "executables").mkdir()
    (tmp_path / "executables" / "0.txt").write_text(module.to_string())
    seen.file = "0.txt"
    mine = found(tmp_path, "<lambda>", seen)
    assert mine is not None
    assert (mine.argument_bytes, mine.output_bytes) == (64, 64)
    assert mine.flops == pytest.approx(2 * 4**3, rel=0.3)


def test_a_callback_shows_in_the_program_that_the_installed_jax_compiles(tmp_path: Path) -> None:
    def step(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x[0])
        return x + 1

    compiled = jax.jit(step).lower(jnp.ones(4)).compile()
    seen, module = account(compiled.runtime_executable())
    (tmp_path / "executables").mkdir()
    (tmp_path / "executables" / "0.txt").write_text(module.to_string())
    seen.file = "0.txt"
    mine = found(tmp_path, "step", seen)
    assert mine is not None
    assert any("callback" in target for target in mine.custom_calls)


def compiled(source: str, name: str) -> str:
    """The optimised program of the function `step` of a source text, as a file of that name."""
    scope: dict[str, Any] = {}
    exec(compile(source, name, "exec"), scope)
    lowered = jax.jit(scope["step"]).lower(jnp.ones((8, 8)))
    return str(lowered.compile().runtime_executable().hlo_modules()[0].to_string())


STEP = "import jax.numpy as jnp\ndef step(x):\n    return jnp.tanh(x @ x).sum()\n"


def test_the_hash_of_a_program_does_not_depend_on_where_it_is_written() -> None:
    plain = compiled(STEP, "train.py")
    moved = compiled("# a comment\n\n" + STEP, "elsewhere.py")
    assert plain != moved
    assert hashed(plain) == hashed(moved)
    assert "train.py" in plain


def test_the_hash_of_another_program_differs() -> None:
    other = compiled(STEP.replace("tanh", "sin"), "train.py")
    assert hashed(compiled(STEP, "train.py")) != hashed(other)


CONVOLVING = """\
HloModule jit_step, is_scheduled=true

%fused_computation (param_0: f32[64,128], param_1: f32[]) -> f32[128] {
  %param_0 = f32[64,128]{1,0} parameter(0)
  ROOT %reduce = f32[128]{0} reduce(%param_0, %param_1), dimensions={0}, to_apply=%region
}

%fused_computation.1 (param_0.1: f32[16,12,12,64]) -> f32[16,9,9,32] {
  ROOT %convolution.3 = f32[16,9,9,32]{3,2,1,0} convolution(%p, %q), window={size=12x12}
}

ENTRY %main.30 (x.1: f32[64,24,24,3], k.1: f32[9,9,3,16]) -> (f32[64,24,24,16]) {
  %conv_general_dilated.5 = f32[64,24,24,16]{3,2,1,0} convolution(%x.1, %k.1), window={size=9x9}
  %convert.2 = f32[8]{0} convert(%x.1), metadata={op_name="jit(step)/convolution(x)"}
  %sum_fusion = f32[128]{0} fusion(%a, %b), kind=kLoop, calls=%fused_computation, metadata={}
  %ynn_fusion.11 = f32[64,12]{1,0} fusion(%c), kind=kCustom, calls=%fused_computation.1
}
"""


def test_convolutions_are_known_alone_and_in_fusions() -> None:
    found = convolutions_in(CONVOLVING)
    assert found & {"conv_general_dilated.5", "ynn_fusion.11"} == found - {"convolution.3"}
    assert not convolutions_in(TEXT)


def test_a_convolution_of_jax_is_known_by_the_name_that_a_trace_has() -> None:
    def step(x: Any, k: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME").sum()

    arrays = jnp.ones((2, 3, 8, 8)), jnp.ones((4, 3, 3, 3))
    text = jax.jit(step).lower(*arrays).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert any(f"{name} = " in entry for name in convolutions_in(text))


@given(st.text())
def test_any_text_has_convolutions_or_none(text: str) -> None:
    assert all(isinstance(name, str) for name in convolutions_in(text))


SOFTMAX = """HloModule jit_step

%fused (p: f32[64,128], w: f32[128,50000]) -> f32[64,50000] {
  %p = f32[64,128]{1,0} parameter(0)
  %w = f32[128,50000]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,50000]{1,0} dot(%p, %w), lhs_contracting_dims={1}
}

ENTRY %main (p.1: f32[64,128], w.1: f32[128,50000]) -> f32[64] {
  %p.1 = f32[64,128]{1,0} parameter(0)
  %w.1 = f32[128,50000]{1,0} parameter(1)
  %fusion.1 = f32[64,50000]{1,0} fusion(%p.1, %w.1), kind=kOutput, calls=%fused
  %reduce.1 = f32[64]{0} reduce(%fusion.1, %p.1), dimensions={1}
  %call.1 = f32[64]{0} call(%fusion.1), to_apply=%fused
  ROOT %add.1 = f32[64]{0} add(%reduce.1, %reduce.1)
}
"""


def test_a_long_axis_takes_what_operations_that_read_or_write_it_take() -> None:
    took_ms = {"fusion.1": 6.0, "reduce.1": 2.0, "add.1": 2.0, "call.1": 100.0, "other": 5.0}
    assert axes_ms(SOFTMAX, took_ms) == (10.0, {50_000: 8.0})


def test_nothing_is_told_where_no_operation_was_traced() -> None:
    assert axes_ms(SOFTMAX, {})[0] == 0.0
    assert axes_ms("", {"fusion.1": 1.0}) == (0.0, {})


def test_the_axes_of_a_program_that_the_installed_jax_compiles() -> None:
    step = jax.jit(lambda x, w: jax.nn.softmax(x @ w).sum())
    text = step.lower(jnp.ones((8, 16)), jnp.ones((16, 3000))).compile().as_text()
    names = {found[0] for found in OPERATION.findall(text)}
    whole_ms, by_axis = axes_ms(text, dict.fromkeys(names, 1.0))
    assert by_axis[3000] > 0.2 * whole_ms
