"""A captured step computes what the program's own calls do, step after step."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.serialize_executable import serialize
from msgspec import structs

from perfdoctor.observe.agent import values
from perfdoctor.observe.agent.arrays import axes_of, offset_bytes
from perfdoctor.replay.__main__ import compiled_anew
from perfdoctor.replay.step import Step, lying, made, raw_values, taker
from perfdoctor.schema.capture import ALIGNED, Capture, Conditions, SavedLeaf
from tests.replay.captured import (
    COMPARED,
    Captured,
    Program,
    captured,
    copied,
    new_batches,
    over_the_host,
    training,
    two_functions,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A step of the program that has a bit of everything."""
    return captured(training, tmp_path_factory.mktemp("training"))


def replayed(found: Captured, steps: int = COMPARED, **conditions: Any) -> list[list[Any]]:
    """What the calls of so many steps return."""
    step = Step(found.folder, found.capture, Conditions(**conditions))
    latest, results = step.first(), []
    for _ in range(steps):
        for place, call in enumerate(step.calls):
            latest[place] = call(latest)
            results.append([copied(each) for each in latest[place]])
    return results


def assert_same(found: list[list[Any]], expected: list[list[Any]]) -> None:
    """Call by call, result by result."""
    assert len(found) >= 1 and len(expected) >= len(found)
    for mine, theirs in zip(found, expected, strict=False):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_another_call_takes_later_is_not_donated(tmp_path: Path) -> None:
    found = captured(two_functions, tmp_path)
    assert_same(replayed(found, donated=True), found.results)


def test_a_step_has_a_bit_of_everything(trained: Captured) -> None:
    roles = {name: (leaf.role, leaf.kind) for name, leaf in trained.leaves.items()}
    assert roles == {
        "params['v']": ("state", "device"),
        "params['w']": ("state", "device"),
        "key": ("state", "key"),
        "scale": ("constant", "device"),
        "rate": ("constant", "scalar"),
        "batch": ("constant", "host"),
    }
    (call,) = trained.capture.calls
    assert call.donated == (True, True, False, False, False, False)


def test_it_goes_on_as_the_program_does(trained: Captured) -> None:
    assert_same(replayed(trained), trained.results)


@pytest.mark.parametrize("program", [training, two_functions, new_batches])
def test_what_the_program_has_compiled_is_taken(program: Program, tmp_path: Path) -> None:
    found = captured(program, tmp_path)
    as_compiled = Step(found.folder, found.capture, Conditions())
    assert all(isinstance(call.function, jax.stages.Compiled) for call in as_compiled.calls)
    anew = Captured(found.folder, compiled_anew(found.capture), found.leaves, found.results)
    assert_same(replayed(anew, 1), replayed(found, 1))


def test_what_can_not_be_taken_is_compiled_anew(trained: Captured) -> None:
    def function(capture: Capture, **conditions: Any) -> Any:
        return Step(trained.folder, capture, Conditions(**conditions)).calls[0].function

    (call,) = trained.capture.calls
    (trained.folder / "broken").write_bytes(b"no executable")
    broken = structs.replace(trained.capture, calls=(structs.replace(call, executable="broken"),))
    assert isinstance(function(trained.capture), jax.stages.Compiled)
    assert not isinstance(function(broken), jax.stages.Compiled)
    assert not isinstance(function(trained.capture, donated=False), jax.stages.Compiled)


@pytest.mark.parametrize("donated", [True, False])
def test_whether_its_state_is_donated_changes_no_result(trained: Captured, donated: bool) -> None:
    assert_same(replayed(trained, donated=donated), trained.results)


@pytest.mark.parametrize("resident", ["state", "ahead", "all"])
def test_where_its_arguments_lie_changes_no_result(trained: Captured, resident: str) -> None:
    assert_same(replayed(trained, resident=resident), trained.results)


def test_it_begins_anew_each_time(trained: Captured) -> None:
    step = Step(trained.folder, trained.capture, Conditions())
    for _ in range(2):
        latest = step.first()
        latest[0] = step.calls[0](latest)
        assert_same([[copied(each) for each in latest[0]]], trained.results)


@pytest.mark.parametrize("program", [over_the_host, two_functions])
def test_other_programs_go_on_too(program: Program, tmp_path: Path) -> None:
    found = captured(program, tmp_path)
    assert_same(replayed(found), found.results)


def test_a_state_on_the_host_stays_there_or_is_kept_on_the_device(tmp_path: Path) -> None:
    found = captured(over_the_host, tmp_path)
    assert (found.leaves["state"].role, found.leaves["state"].kind) == ("state", "host")
    for resident, on_host in (("as-it-is", {0}), ("state", set()), ("ahead", set())):
        step = Step(found.folder, found.capture, Conditions(resident=resident))  # type: ignore[arg-type]
        assert step.calls[0].on_host == on_host
    assert_same(replayed(found, resident="state"), found.results)


def test_what_one_call_returns_is_an_argument_of_the_next(tmp_path: Path) -> None:
    found = captured(two_functions, tmp_path)
    sources = [leaf.source for call in found.capture.calls for leaf in call.leaves]
    assert len(found.capture.calls) == 2
    assert sorted(each for each in sources if each is not None) == [
        (0, 0),
        (1, 0),
        (1, 0),
    ]  # the parameters go to both


def test_the_batch_of_the_captured_step_is_used_in_each(tmp_path: Path) -> None:
    found = captured(new_batches, tmp_path)
    assert found.leaves["batch"].role == "new"
    assert_same(replayed(found, 1), found.results)
    for resident, kind in (("as-it-is", np.ndarray), ("state", np.ndarray), ("all", jax.Array)):
        step = Step(found.folder, found.capture, Conditions(resident=resident))  # type: ignore[arg-type]
        assert isinstance(next(step.calls[0].batches)[0], kind)


def test_each_step_takes_the_rows_of_the_next_batch(tmp_path: Path) -> None:
    found = captured(new_batches, tmp_path)
    [call] = found.capture.calls
    number = next(n for n, leaf in enumerate(call.leaves) if leaf.role == "new")
    leaf = call.leaves[number]
    batch = np.frombuffer(raw_values(tmp_path, found.capture, leaf.file), leaf.dtype)
    (tmp_path / "later.raw").write_bytes((batch + 1).tobytes())
    leaves = list(call.leaves)
    leaves[number] = structs.replace(leaf, later=("later.raw",))
    capture = structs.replace(found.capture, calls=(structs.replace(call, leaves=tuple(leaves)),))
    [ready] = Step(found.folder, capture, Conditions()).calls
    for each in (batch, batch + 1, batch):
        np.testing.assert_array_equal(next(ready.batches)[0], each)


def test_values_without_room_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "LIMIT_BYTES", 0)
    found = captured(new_batches, tmp_path)
    assert found.capture.made == ("params", "batch")
    assert [file.suffix for file in tmp_path.iterdir()].count(".raw") == 0
    step = Step(found.folder, found.capture, Conditions())
    batch = next(step.calls[0].batches)[0]
    assert (batch.shape, batch.dtype) == ((16,), np.int32)
    assert batch.min() >= 10 and batch.max() < 20
    assert np.isfinite(replayed(found)[-1][0]).all()


@pytest.mark.parametrize("offset", [0, 16, 32, 48])
@pytest.mark.parametrize("axes", [(), (1, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_an_array_of_the_host_lies_as_it_did_in_the_program(
    offset: int, axes: tuple[int, ...], dtype: str
) -> None:
    """One that begins at a multiple of 64 bytes is handed over without a copy."""
    value = np.resize([0, 1, 1], (6, 5)).astype(jax.numpy.dtype(dtype))
    leaf = a_leaf(dtype, 6, 5, offset_bytes=offset, axes=axes)
    found = lying(value, leaf)
    assert (offset_bytes(found), axes_of(found)) == (offset, axes)
    np.testing.assert_array_equal(found, value)
    assert lying(value[:0], leaf).shape == (0, 5)
    assert lying(np.stack([value, value]), leaf).shape == (2, 6, 5)  # a larger batch


def test_in_which_order_the_axes_of_an_array_lie_is_told() -> None:
    value = np.zeros((2, 3, 4))
    assert axes_of(value) == axes_of(value[:, ::2]) == axes_of(jax.numpy.zeros((3, 2)).T) == ()
    assert axes_of(value.T) == (2, 1, 0)
    assert axes_of(value.transpose(1, 0, 2)) == (1, 0, 2)
    assert axes_of(value[:1].reshape(1, 12)) == axes_of(np.zeros((5, 1)).T) == ()  # one row
    assert axes_of(np.float32(1.0)) == axes_of(1.0) == ()


def test_a_transposed_array_of_the_host_is_one_in_the_replay(tmp_path: Path) -> None:
    def program(jit: Any) -> Iterator[None]:
        step = jit(lambda state, table, x: state + table[3] @ x)
        table = np.arange(35, dtype=np.float32).reshape(5, 7).T
        state, random = jax.numpy.zeros(()), np.random.default_rng(0)
        while True:
            state = step(state, table, random.random(5, np.float32))
            yield

    found = captured(program, tmp_path)
    step = Step(found.folder, found.capture, Conditions())
    tables = [each for each in next(step.calls[0].batches) if each.shape == (7, 5)]
    assert [axes_of(each) for each in tables] == [(1, 0)]
    np.testing.assert_array_equal(tables[0], np.arange(35, dtype=np.float32).reshape(5, 7).T)


def test_where_an_array_of_the_host_lies_is_saved(tmp_path: Path) -> None:
    found = captured(new_batches, tmp_path)
    leaves = [leaf for leaf in found.capture.calls[0].leaves if leaf.kind == "host"]
    assert leaves and all(leaf.offset_bytes in range(ALIGNED) for leaf in leaves)
    others = [leaf for leaf in found.capture.calls[0].leaves if leaf.kind == "device"]
    assert others and all(leaf.offset_bytes is None for leaf in others)
    step = Step(found.folder, found.capture, Conditions())
    lie = [offset_bytes(each) for each in next(step.calls[0].batches)]
    assert [each for each in lie if each is not None] == [leaf.offset_bytes for leaf in leaves]


def a_leaf(dtype: str, *shape: int, **others: Any) -> SavedLeaf:
    """Whose values are to be made."""
    return SavedLeaf(role="new", kind="host", shape=shape, dtype=dtype, **others)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint32", "bool"])
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4)])
def test_values_of_any_kind_can_be_made(dtype: str, shape: tuple[int, ...]) -> None:
    value = made(a_leaf(dtype, *shape))
    assert (value.shape, str(value.dtype)) == (shape, dtype)


@pytest.mark.parametrize(("low", "high"), [(-5, 3), (7, 7), (7, 8)])
def test_integers_are_made_within_what_was_seen(low: int, high: int) -> None:
    value = made(a_leaf("int32", 1000, low=low, high=high))
    assert value.min() >= low and value.max() < max(high, low + 1)


def test_what_is_made_of_a_large_array_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdoctor.replay.step.DRAWN", 10)
    value = made(a_leaf("float32", 3, 10))
    assert (value[0] == value[2]).all()


@pytest.mark.parametrize("indices", [(), (2,), (2, 0), (1, 1, 0)])
def test_any_number_of_arguments_is_taken_as_a_tuple(indices: tuple[int, ...]) -> None:
    assert taker(indices)(("a", "b", "c")) == tuple("abc"[index] for index in indices)


def test_a_disk_that_is_full_is_a_reason_and_no_matter_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "capture.json.part").mkdir()  # where the manifest is to be written
    found = captured(training, tmp_path)
    assert found.failure is not None and found.failure.startswith("IsADirectoryError")


LOADING = """
import sys
from pathlib import Path

import jax.export
import numpy as np

from perfdoctor.replay.step import loaded

folder = Path(sys.argv[1])
exported = jax.export.deserialize(bytearray((folder / "exported").read_bytes()))
function = loaded(folder / "executable", exported, set())
print(float(function(np.eye(3, dtype=np.float32))[0].sum()))
"""


def test_what_calls_lapack_is_loaded_in_a_process_that_has_lowered_nothing(tmp_path: Path) -> None:
    function = jax.jit(lambda a: (jnp.linalg.svd(a, compute_uv=False),))
    matrix = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    (tmp_path / "exported").write_bytes(jax.export.export(function)(matrix).serialize())
    (tmp_path / "executable").write_bytes(serialize(function.lower(matrix).compile())[0])
    command = [sys.executable, "-c", LOADING, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "3.0\n")
