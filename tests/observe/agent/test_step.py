"""A program in its own threads: its step is timed, probed and saved, and its output is as ever."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from perfdoctor.injection import injected
from perfdoctor.observe.agent import patience, step, timed
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.observe.agent.timing import Timer
from perfdoctor.protocol import BROKEN
from perfdoctor.schema.calls import Restless
from perfdoctor.schema.capture import MANIFEST, Capture
from perfdoctor.schema.recording import Recording

LIMIT_S = 120.0
"""Generous: reached only where something is wrong."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is timed."""
    monkeypatch.setattr(timed, "TIMED_S", 0.05)
    monkeypatch.setattr(patience, "FIRST_CALL_S", LIMIT_S)


def watching() -> tuple[StepWatch, Any]:
    """With jax's makers, wrapped."""
    watch = StepWatch(threading.Event(), GarbageWatch(), CompilationWatch(), os.environ)
    made = SimpleNamespace(
        config=jax.config,
        jit=jax.jit,
        pmap=jax.pmap,
        block_until_ready=jax.block_until_ready,
        default_backend=jax.default_backend,
        device_put=jax.device_put,
        tree_util=jax.tree_util,
        Array=jax.Array,
        dtypes=jax.dtypes,
        random=jax.random,
        vmap=jax.vmap,
        make_jaxpr=jax.make_jaxpr,
        ShapeDtypeStruct=jax.ShapeDtypeStruct,
    )
    watch.attach(made)
    return watch, made


@contextmanager
def training(program: Callable[[threading.Event], None], threads: int = 1) -> Iterator[None]:
    """Threads that train meanwhile."""
    over = threading.Event()
    running = [threading.Thread(target=program, args=(over,)) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join()


def steps_of(made: Any) -> Callable[[threading.Event], None]:
    """Trains until it is over."""
    jitted = made.jit(lambda p, x: p + x.mean())

    def train(over: threading.Event) -> None:
        p = jnp.zeros(8)
        while not over.is_set():
            p = jax.block_until_ready(jitted(p, np.random.default_rng().random(4, np.float32)))

    return train


def test_a_step_is_told_and_saved(quick: None, tmp_path: Path) -> None:
    watch, made = watching()
    with training(steps_of(made)):
        watch.look()
        watch.capture(tmp_path, {})
    assert watch.failure is None
    found = watch.calls
    assert found is not None
    (call,) = found.calls
    assert {leaf.argument: leaf.role for leaf in call.leaves} == {"p": "state", "x": "new"}
    assert found.time_ms > 0 and found.steps >= 20
    assert (found.threads, found.in_main_thread) == (1, False)
    assert found.ready > 0.9
    capture = msgspec.json.decode((tmp_path / MANIFEST).read_bytes(), type=Capture)
    assert [leaf.role for leaf in capture.calls[0].leaves] == ["state", "new"]


@pytest.mark.parametrize(("first_s", "then_s"), [(0.004, 0.001), (0.001, 0.004)])
def test_steps_that_take_less_by_now_are_looked_at_anew(
    quick: None, first_s: float, then_s: float
) -> None:
    watch, made = watching()
    pause_s = [first_s]
    jitted = made.jit(lambda p: p + 1.0)

    def train(over: threading.Event) -> None:
        p = jnp.zeros(8)
        while not over.is_set():
            time.sleep(pause_s[0])
            p = jax.block_until_ready(jitted(p))

    with training(train):
        watch.look()
        assert watch.calls is not None
        restless = (Restless(name="loader", cpu_ms=1.0, cores=1.0, is_process=False),)
        watch.calls = before = replace(watch.calls, restless=restless)
        watch.failure = "its step could not be saved"
        pause_s[0] = then_s
        watch.look_again()
    assert watch.failure == "its step could not be saved"
    assert watch.calls is not None and watch.calls.restless == restless
    assert (watch.calls.time_ms < before.time_ms) is (first_s > then_s)
    assert (watch.calls is before) is (first_s < then_s)


def test_what_takes_less_but_is_another_step_tells_nothing(quick: None) -> None:
    watch, made = watching()

    def evaluate(p: Any) -> Any:
        return p * 0.5

    jitted, evaluated, evaluates = (
        made.jit(lambda p: p + 1.0),
        made.jit(evaluate),
        threading.Event(),
    )

    def train(over: threading.Event) -> None:
        p = jnp.zeros(8)
        while not over.is_set():
            time.sleep(0.0 if evaluates.is_set() else 0.004)
            p = jax.block_until_ready((evaluated if evaluates.is_set() else jitted)(p))

    with training(train):
        watch.look()
        before, before_ms = watch.calls, watch.step_ms
        evaluates.set()
        watch.look_again()
    assert before is not None
    assert (watch.calls, watch.step_ms) == (before, before_ms)


def test_what_was_never_told_is_not_timed_again(quick: None) -> None:
    watch, _ = watching()
    watch.look_again()
    assert watch.calls is None


def test_the_time_in_which_something_compiles_is_told(quick: None) -> None:
    watch, made = watching()

    def train(over: threading.Event) -> None:
        jitted, p = made.jit(lambda p, x: p + x.mean()), jnp.zeros(8)
        for size in itertools.count(1):
            if over.is_set():
                break
            p = jitted(p, np.ones(size // 4, np.float32))  # another size in each fourth step

    watch._compilation.install(jax)
    try:
        with training(train):
            watch.look()
    finally:
        watch._compilation.remove(jax)
    found = watch.calls
    assert found is not None
    assert 0 < found.compilations < 0.5
    assert 0 < found.compiling_ms < found.time_ms


def test_what_was_timed_while_an_evaluation_compiled_is_timed_again(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, made = watching()
    timers: list[Timer] = []

    def timer(*given: Any) -> Timer:
        timers.append(Timer(*given))
        return timers[-1]

    monkeypatch.setattr(timed, "Timer", timer)
    jitted, evaluated = made.jit(lambda p: p + 1.0), threading.Event()

    def evaluate(p: jax.Array) -> jax.Array:
        for n in range(40):  # a program whose compilation takes most of the time
            p = jnp.sin(p * n).sum() + p
        return p

    def train(over: threading.Event) -> None:
        p = jnp.zeros(8)
        while not over.is_set():
            p = jax.block_until_ready(jitted(p))
            if timers and len(timers[0].calls) > 5 and not evaluated.is_set():
                made.jit(evaluate)(p)
                evaluated.set()

    watch._compilation.install(jax)
    try:
        with training(train):
            watch.look()
    finally:
        watch._compilation.remove(jax)
    assert watch.calls is not None and len(timers) == 2
    assert watch.calls.compilations == watch.calls.compiling_ms == 0.0


def test_a_later_look_at_nothing_forgets_nothing(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, made = watching()
    with training(steps_of(made)):
        watch.look()
        watch.capture(tmp_path, {})
    seen, saved = watch.calls, sorted(each.name for each in tmp_path.iterdir())
    monkeypatch.setattr(patience, "FIRST_CALL_S", 0.05)
    watch.look()  # the program makes no calls any more
    watch.capture(tmp_path, {})
    assert seen is not None and watch.calls is seen
    assert watch.failure is None
    assert sorted(each.name for each in tmp_path.iterdir()) == saved


def test_a_later_capture_takes_the_place_of_the_earlier_one(quick: None, tmp_path: Path) -> None:
    watch, made = watching()
    with training(steps_of(made)):
        for _ in range(2):
            watch.look()
            watch.capture(tmp_path, {})
    assert {each.name[:2] for each in tmp_path.iterdir()} == {"ca", "2-"}
    capture = msgspec.json.decode((tmp_path / MANIFEST).read_bytes(), type=Capture)
    assert all((tmp_path / file).exists() for file in capture.calls[0].programs.values())


def test_several_callers_are_told(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "TIMED_S", 0.5)  # a busy machine lets one wait for a core for long
    watch, made = watching()
    with training(steps_of(made), threads=2):
        watch.look()
    assert watch.calls is not None
    assert watch.calls.threads == 2


def test_afterwards_nobody_listens(quick: None, tmp_path: Path) -> None:
    watch, made = watching()
    with training(steps_of(made)):
        watch.look()
        watch.capture(tmp_path, {})
        assert watch.hearing.hear is None


def test_a_program_that_makes_no_call_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST_CALL_S", 0.05)
    watch, _ = watching()
    watch.look()
    watch.capture(tmp_path, {})
    assert watch.calls is None
    assert watch.failure == "too few jitted calls were made"
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_ends_is_not_waited_for() -> None:
    watch, _ = watching()
    watch._ended.set()
    watch.look()
    assert watch.calls is None


def test_a_step_that_is_not_called_again_is_saved_at_the_end_with_made_up_values(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "CAPTURING_S", 0.05)
    watch, made = watching()
    with training(steps_of(made)):
        watch.look()
    (tmp_path / MANIFEST).write_text("of an earlier look")
    watch.capture(tmp_path, {})
    assert watch.failure == "the step was not called again"
    assert not (tmp_path / MANIFEST).exists()
    watch.conclude(tmp_path, {})
    assert watch.failure is None
    capture = msgspec.json.decode((tmp_path / MANIFEST).read_bytes(), type=Capture)
    assert capture.made == ("p", "x")
    assert [leaf.role for leaf in capture.calls[0].leaves] == ["state", "new"]


def test_why_a_step_was_not_saved_is_told(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, made = watching()
    with training(steps_of(made)):
        watch.look()
        monkeypatch.setattr("perfdoctor.observe.agent.variants.exported", lambda *_: 1 / 0)
        watch.capture(tmp_path, {})
    assert watch.failure == "ZeroDivisionError: division by zero"
    monkeypatch.undo()
    watch.conclude(tmp_path, {})
    assert watch.failure == "ZeroDivisionError: division by zero"
    assert not (tmp_path / MANIFEST).exists()  # what was refused is not tried with other values


SCRIPT = """
import logging, os, sys, threading, time, warnings
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
import jax, jax.numpy as jnp, numpy as np

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
log = logging.getLogger("train")
until = sys.argv[1]

def loss(p, x):
    print("traced for", x.shape)
    log.info("tracing")
    warnings.warn("in a trace")
    if x.shape[0] == 5:
        raise ValueError("a batch of five")
    return ((x @ p["w"] + p["b"]) ** 2).mean()

@jax.jit
def step(p, key, x):
    key, _ = jax.random.split(key)
    value, grads = jax.value_and_grad(loss)(p, x)
    return jax.tree.map(lambda a, g: a - 0.01 * g, p, grads), key, value

p = {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}
key = jax.random.key(0)
batch = np.ones((3, 4), np.float32)
begun = time.monotonic()
steps = 0
while (steps < 50 or not os.path.exists(until)) and time.monotonic() - begun < 60:
    p, key, value = step(p, key, batch)
    steps += 1
    if steps == 50:
        log.warning("loss %.4f", value)
        print(jax.random.key_data(key), p["b"])
print("ends")
thread = threading.Thread(target=step, args=(p, key, batch[:, :2]), name="other")
thread.start()
thread.join()
step(p, key, np.ones((5, 4), np.float32))
"""


def run(script: Path, until: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), str(until)],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """The folder of a script whose step was saved; what it printed, and what it does without us."""
    folder = tmp_path_factory.mktemp("saved")
    script, notes, to = folder / "train.py", folder / "notes", folder / "capture"
    for each in (notes, to):
        each.mkdir()
    script.write_text(SCRIPT)
    env = injected(
        os.environ,
        "perfdoctor.observe.agent.watch",
        folder=str(notes),
        steady_within_s=30.0,
        window_s=0.3,
        capture_to=str(to),
    )
    with_us = run(script, notes / "open-1", env)
    assert not (notes / BROKEN).exists(), (notes / BROKEN).read_text()
    return folder, with_us, run(script, script, dict(os.environ))


def test_a_script_whose_step_is_saved_prints_what_it_would_without_us(saved: Any) -> None:
    folder, with_us, without = saved
    assert (folder / "capture" / MANIFEST).exists()
    assert with_us.stdout == without.stdout
    assert with_us.stderr == without.stderr
    assert with_us.returncode == without.returncode == 1
    assert without.stderr.count("ValueError: a batch of five") == 1


def test_its_recording_tells_the_step(saved: Any) -> None:
    folder, _, _ = saved
    text = (folder / "notes" / "recording.json").read_bytes()
    recording = msgspec.json.decode(text, type=Recording)
    assert recording.capture_failure is None
    assert recording.step_calls is not None
    (call,) = recording.step_calls.calls
    assert {leaf.argument: leaf.role for leaf in call.leaves} == {
        "p['b']": "state",
        "p['w']": "state",
        "key": "state",
        "x": "constant",
    }
    assert recording.step_calls.in_main_thread


def test_a_variable_that_it_sets_before_it_imports_jax_is_saved(saved: Any) -> None:
    folder, _, _ = saved
    text = (folder / "capture" / MANIFEST).read_bytes()
    found = msgspec.json.decode(text, type=Capture)
    assert "--xla_cpu_multi_thread_eigen=false" in found.env["XLA_FLAGS"]
