"""Which values of a step are saved, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from perfdoctor.observe.agent import values
from perfdoctor.replay.step import raw_values
from perfdoctor.schema.capture import AS_IT_IS, MANIFEST, Capture
from tests.observe.agent.heard import STEPS
from tests.observe.agent.test_capture import SHAPE, captured, run, saved, training, value


def test_values_are_read_back_as_they_were(tmp_path: Path) -> None:
    (call,) = saved(training, tmp_path).calls
    p, table, x, rate = call.leaves
    assert [leaf.role for leaf in call.leaves] == ["state", "constant", "new", "constant"]
    assert np.array_equal(value(tmp_path, p), np.full(SHAPE, STEPS, jnp.bfloat16))
    assert np.array_equal(value(tmp_path, table), np.arange(8))
    assert np.array_equal(value(tmp_path, x), np.full(2, STEPS, np.float32))
    assert (p.dtype, x.dtype) == ("bfloat16", "float32")
    assert (rate.number, rate.file) == (0.5, "")
    assert (p.source, call.results) == ((0, 0), 2)


def test_keys(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda k: jax.random.split(k)[0])
        key = jax.random.key(7)
        while True:
            key = step(key)
            yield

    (call,) = saved(program, tmp_path).calls
    (leaf,) = call.leaves
    assert (leaf.kind, leaf.dtype, leaf.shape) == ("key", "uint32", (2,))
    key = jax.random.wrap_key_data(value(tmp_path, leaf), impl=leaf.key)
    expected = jax.random.key(7)
    for _ in range(STEPS):
        expected = jax.random.split(expected)[0]
    assert jnp.array_equal(jax.random.key_data(key), jax.random.key_data(expected))
    assert run(tmp_path, call.programs[AS_IT_IS], key)


@pytest.mark.parametrize(
    "number", [3, True, 0.25, -0.0, float("inf"), float("nan"), 1 + 2j, np.float64(2.5), np.int8(3)]
)
def test_numbers(tmp_path: Path, number: Any) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: p + 0 * jnp.real(x))
        p = jnp.zeros(SHAPE)
        while True:
            p = step(p, number)
            yield

    (call,) = saved(program, tmp_path).calls
    leaf = call.leaves[1]
    found = leaf.number if leaf.number is not None else value(tmp_path, leaf)[()]
    assert np.array_equal(found, number, equal_nan=True)


def test_what_an_earlier_call_of_the_step_returns_is_not_saved(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        grad = made.jit(lambda p, x: p * x)
        update = made.jit(lambda p, g: p - g)
        p = jnp.ones(SHAPE)
        while True:
            g = grad(p, np.ones(SHAPE, np.float32))
            p = update(p, g)
            yield

    found = saved(program, tmp_path)
    sources = {
        (n, leaf.source): leaf.file
        for n, call in enumerate(found.calls)
        for leaf in call.leaves
        if leaf.source
    }
    for (place, (maker, _)), file in sources.items():
        assert bool(file) == (maker >= place)


def test_too_large_values_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "LIMIT_BYTES", 40)
    found = saved(training, tmp_path)
    (call,) = found.calls
    p, table, x, _ = call.leaves
    assert found.made == ("table",)
    assert (table.file, table.low, table.high) == ("", 0, 8)
    assert p.file and x.file
    assert found.saved_bytes == 16 + 8


def test_a_step_that_was_begun_in_vain_takes_no_room(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        add = made.jit(lambda acc, x: acc + x)
        update = made.jit(lambda p, acc: (p + acc, acc * 0))
        p, acc = jnp.zeros(SHAPE), jnp.zeros(SHAPE)
        for number in range(1000):
            for _ in range(4 if number == STEPS else 3):  # the first one that is to be saved
                acc = add(acc, np.ones(SHAPE, np.float32))
            p, acc = update(p, acc)
            yield

    found = saved(program, tmp_path)
    files = [leaf.file for call in found.calls for leaf in call.leaves if leaf.file]
    assert len(found.calls) == 4
    assert found.saved_bytes == 32 * len(files)
    assert len(set(files)) == len(files)


@dataclass
class Late:
    """A copy of an array that is still to be computed."""

    array: Any
    computed: bool = False

    def is_ready(self) -> bool:
        return self.computed

    def __array__(self, *_: Any, **__: Any) -> Any:
        assert self.computed
        return np.asarray(self.array)


def test_what_is_not_computed_yet_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = list[Late]()

    def copied(jax: Any, array: Any) -> Late:
        late.append(Late(np.array(array)))
        return late[-1]

    monkeypatch.setattr(values, "copied", copied)
    capturer = captured(training, tmp_path, written=False)
    assert capturer.done.is_set() and capturer.capture is not None
    assert not capturer.is_computed() and not (tmp_path / MANIFEST).exists()
    for each in late:
        each.computed = True
    assert capturer.is_computed()
    capturer.finish()
    manifest = msgspec.json.decode((tmp_path / MANIFEST).read_bytes(), type=Capture)
    leaves = manifest.calls[0].leaves
    assert all(raw_values(tmp_path, manifest, leaf.file) for leaf in leaves if leaf.file)
    assert len(list(tmp_path.glob("*values.raw"))) == 1


def test_what_lies_on_an_accelerator_is_fetched_and_takes_none_of_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "lies_in_host_memory", lambda jax, value: False)
    monkeypatch.setattr(values, "copied", lambda jax, array: pytest.fail("a copy"))
    manifest = saved(training, tmp_path)
    assert all((tmp_path / leaf.file).exists() for leaf in manifest.calls[0].leaves if leaf.file)


def test_a_constant_that_is_put_on_the_device_anew_comes_from_the_host(tmp_path: Path) -> None:
    table = np.ones((2**18, 2), np.float32)

    def program(made: Any) -> Any:
        step = made.jit(lambda p, table, fixed: p + table[0].sum() + fixed)
        p, fixed = jnp.zeros(SHAPE), jnp.ones(SHAPE)
        while True:
            p = step(p, jnp.array(table), fixed)
            yield

    (call,) = saved(program, tmp_path).calls
    _, anew, fixed = call.leaves
    assert (anew.role, anew.kind, fixed.role, fixed.kind) == (
        "constant",
        "host",
        "constant",
        "device",
    )
    assert np.array_equal(value(tmp_path, anew), table)
