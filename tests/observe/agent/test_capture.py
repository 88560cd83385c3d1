"""One step of a program is saved, and the program runs as ever."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.capture import LARGE_BYTES, UNUSUAL, Capturer
from perfdoctor.observe.agent.roles import probe_of
from perfdoctor.observe.agent.values import SavedValues
from perfdoctor.replay.process import capture_in
from perfdoctor.replay.step import raw_values
from perfdoctor.schema.capture import AS_IT_IS, AT_ONCE, MANIFEST, Capture, SavedLeaf
from tests.command import ROOT
from tests.observe.agent.heard import STEPS, Program, makers

SHAPE = (8,)


def captured(
    program: Program,
    folder: Path,
    env: dict[str, str] | None = None,
    steps: int = STEPS,
    *,
    written: bool = True,
) -> Capturer:
    """So many steps of a program are probed, and one after them is saved, and written."""
    prober = Prober(jax)
    made, hearing = makers(prober)
    running = program(made)
    for _ in islice(running, steps):
        pass
    probe = probe_of(prober)
    assert probe is not None, prober.failure
    before = dict(os.environ) if env is None else env
    capturer = Capturer(jax, probe, folder, {"jax_enable_x64": False}, before)
    hearing.hear = capturer
    for _ in islice(running, steps):
        pass
    if written:
        capturer.finish()
    return capturer


def saved(
    program: Program, folder: Path, steps: int = STEPS, env: dict[str, str] | None = None
) -> Capture:
    """What was written."""
    capturer = captured(program, folder, env, steps)
    assert capturer.failure is None, capturer.failure
    return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)


def value(folder: Path, leaf: SavedLeaf) -> Any:
    """As the replay reads it."""
    raw = raw_values(folder, capture_in(folder), leaf.file)
    return np.frombuffer(raw, jnp.dtype(leaf.dtype)).reshape(leaf.shape)


def run(folder: Path, file: str, *arguments: Any) -> Any:
    """An exported program."""
    return jax.export.deserialize(bytearray((folder / file).read_bytes())).call(*arguments)


def training(made: Any) -> Any:
    """State, a constant, new data and numbers; the state counts the steps."""
    step = made.jit(lambda p, table, x, rate: (p + 1, (p * table).sum() + x[0] * rate))
    p, table = jnp.zeros(SHAPE, jnp.bfloat16), jnp.arange(8, dtype=jnp.int32)
    for number in range(1000):
        p, _ = step(p, table, np.full(2, number, np.float32), 0.5)
        yield


def test_the_program_is_the_step(tmp_path: Path) -> None:
    (call,) = saved(training, tmp_path).calls
    arguments = [leaf.number if not leaf.file else value(tmp_path, leaf) for leaf in call.leaves]
    p, loss = run(tmp_path, call.programs[AS_IT_IS], *arguments)
    assert np.array_equal(p, np.full(SHAPE, STEPS + 1, jnp.bfloat16))
    assert float(loss) == STEPS * 28 + STEPS * 0.5


@pytest.mark.parametrize("rows", [1, LARGE_BYTES // 32 + 1])
def test_what_is_compiled_is_saved_unless_it_holds_large_arrays(tmp_path: Path, rows: int) -> None:
    table = jnp.zeros((rows, *SHAPE)).at[0].set(1.0)

    def program(made: Any) -> Iterator[None]:
        step = made.jit(lambda state, row: state + table[row])
        state = jnp.ones(SHAPE)
        for row in cycle((0, 1)):
            state = step(state, row)
            yield

    (call,) = saved(program, tmp_path).calls
    assert bool(call.executable) == (rows == 1)
    assert {file.name for file in tmp_path.glob("*.executable")} == {call.executable} - {""}


def test_donated_arguments_are_told_and_still_donated(tmp_path: Path) -> None:
    states: list[Any] = []

    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: {k: v + x for k, v in p.items()}, donate_argnums=0)
        p = {"a": jnp.zeros(SHAPE), "b": jnp.zeros(SHAPE)}
        while True:
            states.append(p)
            p = step(p, jnp.ones(SHAPE))
            yield

    (call,) = saved(program, tmp_path).calls
    assert call.donated == (True, True, False)
    assert all(state["a"].is_deleted() for state in states)
    assert np.array_equal(value(tmp_path, call.leaves[0]), np.full(SHAPE, STEPS, np.float32))


def test_static_arguments_are_part_of_the_program(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        step = made.jit(
            lambda p, n, *, mode: p + n if mode == "add" else p, static_argnames=("n", "mode")
        )
        p = jnp.zeros(SHAPE)
        while True:
            p = step(p, n=3, mode="add")
            yield

    (call,) = saved(program, tmp_path).calls
    assert len(call.leaves) == 1
    assert float(run(tmp_path, call.programs[AS_IT_IS], jnp.zeros(SHAPE))[0][0]) == 3.0


def test_a_disk_that_is_full_is_none_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SavedValues, "written", fails)
    capturer = captured(training, tmp_path)
    assert capturer.failure is not None and "No space left" in capturer.failure
    assert capturer.done.is_set() and not (tmp_path / MANIFEST).exists()


def test_state_is_saved_as_it_was_before_the_call_that_takes_its_memory(tmp_path: Path) -> None:
    def donating(made: Any) -> Iterator[None]:
        step = made.jit(lambda p: p + 1, donate_argnums=0)
        p = jnp.zeros(SHAPE)
        while True:
            p = step(p)
            yield

    (leaf,) = saved(donating, tmp_path).calls[0].leaves
    assert list(value(tmp_path, leaf)) == [STEPS] * 8


def test_calls_of_other_functions_with_the_same_lines_are_no_part_of_the_step(
    tmp_path: Path,
) -> None:
    def program(made: Any) -> Any:
        def stepper(rate: float) -> Any:
            return made.jit(lambda p: p - rate)

        actor, critic = stepper(1.0), stepper(2.0)
        a = c = jnp.zeros(SHAPE)
        while True:
            a = actor(a)
            time.sleep(0.001)  # here a step begins: with the critic
            c = critic(c)
            yield

    calls = saved(program, tmp_path).calls
    found = [
        float(run(tmp_path, call.programs[AS_IT_IS], jnp.zeros(SHAPE))[0][0]) for call in calls
    ]
    assert found == [-2.0, -1.0]
    assert [call.leaves[0].source for call in calls] == [(0, 0), (1, 0)]


def test_a_function_that_is_jitted_anew_in_each_step(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        p = jnp.zeros(SHAPE)
        while True:
            p = made.jit(lambda p: p + 1)(p)
            yield

    assert len(saved(program, tmp_path).calls) == 1


def in_sizes(sizes: Sequence[int]) -> Program:
    """Its batches are of these sizes, again and again."""

    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: p + x.sum())
        p = jnp.zeros(SHAPE)
        for size in cycle(sizes):
            p = step(p, np.ones(size, np.float32))
            yield

    return program


def test_of_batches_of_many_sizes_a_large_one_is_saved(tmp_path: Path) -> None:
    call = saved(in_sizes((2, 3, 4, 5, 6, 7)), tmp_path).calls[0]
    assert call.leaves[1].shape[0] >= 5


def test_the_last_batch_of_an_epoch_is_not_what_is_saved(tmp_path: Path) -> None:
    begin = STEPS % 4  # the step after those that were probed has the smaller batch
    sizes = [2 if number == begin else 8 for number in range(4)]
    assert saved(in_sizes(sizes), tmp_path).calls[0].leaves[1].shape == (8,)


def test_of_batches_of_three_sizes_the_middle_one_is_saved(tmp_path: Path) -> None:
    sizes = (2, 2, 8, 8, 4, 4)  # the step after those that were probed has a smaller one
    assert saved(in_sizes(sizes), tmp_path, 36).calls[0].leaves[1].shape == (4,)


def test_nobody_waits_for_a_large_batch_for_long(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: p + x.sum())
        p = jnp.zeros(SHAPE)
        for number in range(1000):
            p = step(p, np.ones(8 if number < STEPS else 2, np.float32))
            yield

    assert STEPS > UNUSUAL
    assert saved(program, tmp_path).calls[0].leaves[1].shape == (2,)


def test_steps_that_come_in_another_order_each_time_are_given_up(tmp_path: Path) -> None:
    def program(made: Any) -> Any:
        one, other = made.jit(lambda x: x + 1), made.jit(lambda x: x + 2)
        for number in range(1000):
            time.sleep(0.002)  # as for a batch: a step begins with the call after it
            one(1.0)
            if number < STEPS:
                other(1.0)
            yield

    capturer = captured(program, tmp_path)
    assert capturer.failure == "its calls come in another order each time"


def test_a_function_that_prints_while_it_is_traced_prints_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def program(made: Any) -> Any:
        def step(p: Any) -> Any:
            print("traced")
            print("an error", file=sys.stderr)
            logging.getLogger("theirs").warning("traced")
            return p + 1

        jitted, p = made.jit(step), jnp.zeros(SHAPE)
        while True:
            p = jitted(p)
            yield

    saved(program, tmp_path)
    output = capsys.readouterr()
    assert (output.out, output.err) == ("traced\n", "an error\n")
    assert [record.message for record in caplog.records if record.name == "theirs"] == ["traced"]


def test_what_jax_logs_of_our_compiling_is_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading keys compiles small helpers."""

    def program(made: Any) -> Any:
        step = made.jit(lambda key: jax.random.split(key, 3)[0])
        key = jax.random.key(3, impl="rbg")
        while True:
            key = step(key)
            yield

    with caplog.at_level(logging.WARNING):
        prober = Prober(jax)
        made, hearing = makers(prober)
        running = program(made)
        for _ in islice(running, STEPS):
            pass
        probe = probe_of(prober)
        assert probe is not None
        hearing.hear = capturer = Capturer(jax, probe, tmp_path, {}, {})
        with jax.log_compiles(True):
            next(running)
    assert capturer.failure is None and capturer.capture is not None
    assert [record.message for record in caplog.records] == []


IN_A_CHILD = """
import json, os, sys
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from tests.observe.agent.test_capture import captured, saved, run
folder = Path(sys.argv[1])
"""
SPLIT = (
    IN_A_CHILD
    + """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, P("data", None)), NamedSharding(mesh, P())
def program(made):
    step = made.jit(lambda p, x: p + x.mean(0), out_shardings=whole)
    p = jax.device_put(jnp.zeros(3), whole)
    while True:
        p = step(p, jax.device_put(jnp.ones((4, 3)), split))
        yield
found = saved(program, folder)
(call,) = found.calls
print(json.dumps([found.mesh, [leaf.split for leaf in call.leaves]]))
"""
)
WIDE = (
    IN_A_CHILD
    + """
jax.config.update("jax_enable_x64", True)
def program(made):
    step = made.jit(lambda p, kind: p + jnp.ones(3, kind), static_argnums=1)
    p = jnp.zeros(3)
    while True:
        p = step(p, jnp.float64)
        yield
found = saved(program, folder)
(call,) = found.calls
(as_it_is,) = run(folder, call.programs["as-it-is"], jnp.zeros(3))
failure = found.failures.get("float32")
print(json.dumps([str(as_it_is.dtype), sorted(call.programs), failure]))
if failure is None:
    (narrow,) = run(folder, call.programs["float32"], jnp.zeros(3, jnp.float32))
    print(json.dumps(str(narrow.dtype)))
"""
)

CHECKPOINTED = (
    IN_A_CHILD
    + """
def program(made):
    loss = lambda p, x: jax.checkpoint(lambda p: jnp.sin(jnp.sin(p * x)))(p).sum()
    step = made.jit(lambda p, x: p - jax.grad(loss)(p, x))
    p = jnp.ones(3)
    while True:
        p = step(p, jnp.ones(3))
        yield
found = saved(program, folder)
(call,) = found.calls
results = [run(folder, call.programs[n], jnp.ones(3), jnp.ones(3)) for n in ("as-it-is", "kept")]
print(json.dumps(found.failures))
print(json.dumps([each[0].tolist() for each in results]))
"""
)


def in_a_child(program: str, folder: Path, **env: str) -> list[Any]:
    """What a program printed, line by line."""
    answer = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_how_arrays_lie_on_several_devices(tmp_path: Path) -> None:
    flags = "--xla_force_host_platform_device_count=2"
    (found,) = in_a_child(SPLIT, tmp_path, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
    assert found == [[["data", 2]], [[], [["data"], []]]]


def test_double_precision_is_saved_in_single_too(tmp_path: Path) -> None:
    found, narrow = in_a_child(WIDE, tmp_path, JAX_PLATFORMS="cpu")
    assert found == ["float64", [AS_IT_IS, AT_ONCE, "float32"], None]
    assert narrow == "float32"


def test_a_step_that_computes_results_again_is_saved_without_that_too(tmp_path: Path) -> None:
    failures, (as_it_is, kept) = in_a_child(CHECKPOINTED, tmp_path, JAX_PLATFORMS="cpu")
    assert "kept" not in failures
    assert kept == pytest.approx(as_it_is)
