"""What sits in a script during a trial, in a process with jax."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.counters import COMPILES, EVERY, FIRST, STEPS
from perfdoctor.trials.shared_counters import SharedCounters

BEGIN = """
import gc, json, os, sys
from functools import partial
import jax, jax.numpy as jnp
from perfdoctor.trials.inside import attach

attach(jax, json.loads(sys.argv[1]))

def calls(name="counters"):
    with open(os.path.join(sys.argv[2], name), "rb") as file:
        return int.from_bytes(file.read(8), "little")

def show(*values):
    print(json.dumps(values))
"""
ORDERS = {"function": "step", "settings": {}, "freeze": False, "skip_collect": False, "cores": ()}


def ran(folder: Path, program: str, **orders: Any) -> list[Any]:
    """What a program shows, with us inside it from the import of jax on."""
    for name in (STEPS, EVERY):
        SharedCounters(folder / name)
    order = json.dumps({**ORDERS, "folder": str(folder), **orders})
    answer = subprocess.run(
        [sys.executable, "-c", BEGIN + program, order, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    shown: list[Any] = json.loads(answer.stdout)
    return shown


@pytest.mark.parametrize(
    "program",
    [
        "step = lambda x: x + 1\nstep.__name__ = 'step'\nf = jax.jit(step)",
        "def step(x): return x + 1\nf = jax.jit(step)",
        "@jax.jit\ndef step(x): return x + 1\nf = step",
        "@partial(jax.jit, donate_argnums=0)\ndef step(x): return x + 1\nf = step",
        "@jax.jit(inline=True)\ndef step(x): return x + 1\nf = step",
        "def step(x, n): return x + n\ng = jax.jit(step, static_argnums=1)\nf = lambda x: g(x, 1)",
        "@partial(jax.jit, static_argnames=('n',))\ndef step(x, n=2): return x + n - 1\nf = step",
        "def step(x, n): return x + n\ng = jax.jit(step)\nf = lambda x: g(x, n=1)",
        "from jax import jit\n@jit\ndef step(x): return x + 1\nf = step",
        """
class Trainer:
    @partial(jax.jit, static_argnums=0)
    def step(self, x): return x + 1
f = Trainer().step""",
        """
class Trainer:
    def __init__(self): self.jitted = jax.jit(self.step)
    def step(self, x): return x + 1
f = Trainer().jitted""",
        """
class Trainer:
    @staticmethod
    @jax.jit
    def step(x): return x + 1
f = Trainer().step""",
    ],
)
def test_a_jitted_function_counts_its_calls_and_works(tmp_path: Path, program: str) -> None:
    called = "\nx = jnp.zeros(())\nfor _ in range(5):\n    x = f(x)\nshow(float(x), calls())"
    assert ran(tmp_path, program + called) == [5.0, 5]


def test_other_functions_count_by_themselves(tmp_path: Path) -> None:
    program = """
@jax.jit
def step(x): return x + 1
@jax.jit
def evaluate(x): return x + 1
steps = jax.jit(lambda x: x + 1)
show(float(step(evaluate(steps(jnp.zeros(()))))), calls(), calls("counters-of-all"))
"""
    assert ran(tmp_path, program) == [3.0, 1, 3]


def test_calls_within_calls_are_one(tmp_path: Path) -> None:
    program = """
@jax.jit
def inner(x): return x + 1
@jax.jit
def step(x): return inner(inner(x))
for _ in range(4): step(1.0)
try:
    step("no number")
except TypeError:
    inner(1.0)
show(float(step(1.0)), calls(), calls("counters-of-all"))
"""
    assert ran(tmp_path, program) == [3.0, 6, 7]


def test_each_thread_is_in_calls_of_its_own(tmp_path: Path) -> None:
    program = """
import threading
@jax.jit
def step(x): return x + 1
step(1.0)
threads = [threading.Thread(target=step, args=(1.0,)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
show(calls("counters-of-all") >= 2)
"""
    assert ran(tmp_path, program) == [True]


def test_what_a_jitted_function_can_do_it_can_still(tmp_path: Path) -> None:
    program = """
@partial(jax.jit, donate_argnums=0)
def step(x):
    "Adds one."
    return x + 1
lowered = step.lower(jnp.zeros(3))
compiled = lowered.compile()
shape = step.eval_shape(jnp.zeros(3)).shape
traced = step.trace(jnp.zeros(3)).jaxpr.in_avals[0].shape
step(jnp.zeros(3))
size = step._cache_size()
step.clear_cache()
names = [step.__name__, step.__doc__, step.__wrapped__.__name__]
show(float(compiled(jnp.zeros(3))[0]), shape, traced, size, step._cache_size(), names, calls())
"""
    names = ["step", "Adds one.", "step"]
    assert ran(tmp_path, program) == [1.0, [3], [3], 1, 0, names, 1]


@pytest.mark.parametrize(
    "use",
    [
        "jax.grad(step)(2.0)",
        "jax.jit(lambda x: step(x) + 3)(1.0)",
        "jax.vmap(step)(jnp.full(3, 2.0))[0]",
        "jax.tree.map(step, [2.0])[0]",
        "jax.lax.scan(lambda x, _: (step(x), None), 2.0, None, length=1)[0]",
        "jax.checkpoint(step)(2.0)",
        "jax.make_jaxpr(step)(2.0).out_avals[0].size * 4",
    ],
)
def test_transformations_of_it_work(tmp_path: Path, use: str) -> None:
    program = f"@jax.jit\ndef step(x): return x * x\nshow(float({use}), calls())"
    assert ran(tmp_path, program)[0] == 4.0


def test_the_instants_and_compilations_are_written_down(tmp_path: Path) -> None:
    program = """
@jax.jit
def step(x): return x + 1
for n in (1, 2, 2): step(jnp.zeros(n))
show(calls())
"""
    before = time.monotonic_ns()
    assert ran(tmp_path, program) == [3]
    numbers = memoryview((tmp_path / "counters").read_bytes()).cast("q").tolist()
    assert numbers[COMPILES] >= 2
    instants = numbers[FIRST : FIRST + 3]
    assert before < instants[0] < instants[1] < instants[2] < time.monotonic_ns()


PAUSED = """
import mmap
from perfdoctor.counters import COMPILING_NS, FIRST_PAUSE, PAUSES
with open(os.path.join(sys.argv[2], "counters"), "r+b") as file:
    counters = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
jax.jit(lambda x: x + 1)(1.0)
before = counters[COMPILING_NS]
counters[FIRST_PAUSE + 1], counters[PAUSES] = 2**62, 1
jax.jit(lambda x: x + 2)(1.0)
show(before, counters[COMPILING_NS] - before)
"""


def test_what_is_compiled_takes_no_time_while_the_script_is_paused(tmp_path: Path) -> None:
    before, paused = ran(tmp_path, PAUSED)
    assert before > 0 and paused == 0


RESTING = """
import mmap, threading, time
from perfdoctor.trials.shared_counters import SharedCounters

class Asker(SharedCounters):
    def __init__(self, file):
        with open(file, "r+b") as shared:
            self._numbers = memoryview(mmap.mmap(shared.fileno(), 0)).cast("q")

@jax.jit
def step(x):
    for _ in range(20): x = jnp.tanh(x @ x)
    return x

def ask():
    wanted = counters.calls + AHEAD
    counters.ask_to_rest(wanted)
    while not counters.rests_since_ns: time.sleep(0.001)
    seen.append([counters.calls >= wanted, all(each.is_ready() for each in jax.live_arrays())])
    counters.let_go_on()

x = step(jnp.ones((400, 400)))
seen, counters = [], Asker(os.path.join(sys.argv[2], NAME))
for _ in range(3):
    asker = threading.Thread(target=ask)
    asker.start()
    while asker.is_alive(): x = step(x)
show(seen)
"""


@pytest.mark.parametrize(("name", "ahead"), [(STEPS, 0), (STEPS, 20), (EVERY, 3)])
def test_it_rests_after_a_step_with_nothing_left_to_compute(
    tmp_path: Path, name: str, ahead: int
) -> None:
    program = RESTING.replace("AHEAD", str(ahead)).replace("NAME)", f"{name!r})")
    assert ran(tmp_path, program) == [[[True, True]] * 3]


SETTINGS = {"jax_enable_x64": True, "jax_default_matmul_precision": "highest"}


def test_settings_are_made_and_the_scripts_code_does_not_unmake_them(tmp_path: Path) -> None:
    program = """
jax.config.update("jax_enable_x64", False)
jax.config.update("jax_debug_nans", True)
from jax import config
config.update("jax_default_matmul_precision", None)
show(jax.config.jax_enable_x64, jax.config.jax_debug_nans,
     jax.config.jax_default_matmul_precision, str(jnp.zeros(3).dtype), calls())
"""
    assert ran(tmp_path, program, settings=SETTINGS) == [True, True, "highest", "float64", 0]


def test_without_settings_the_script_makes_its_own(tmp_path: Path) -> None:
    program = """
jax.config.update("jax_enable_x64", True)
show(str(jnp.zeros(3).dtype), calls())
"""
    assert ran(tmp_path, program) == ["float64", 0]


FREEZING = """
@jax.jit
def step(x): return x + 1
before = gc.get_freeze_count()
for _ in range(2): step(1.0)
early = gc.get_freeze_count()
for _ in range(3): step(1.0)
show(early > before, gc.get_freeze_count() > before + 10_000, calls())
"""


def test_without_steps_it_is_frozen_after_many_calls(tmp_path: Path) -> None:
    program = FREEZING.replace("def step", "def other").replace("step(1.0)", "other(1.0)")
    program = program.replace("show(", "for _ in range(100): other(1.0)\nshow(")
    assert ran(tmp_path, program, freeze=True) == [False, True, 0]


@pytest.mark.parametrize("freeze", [False, True])
def test_what_a_set_up_made_is_frozen_after_some_steps(tmp_path: Path, freeze: bool) -> None:
    assert ran(tmp_path, FREEZING, freeze=freeze) == [False, freeze, 5]


@pytest.mark.parametrize("skip_collect", [False, True])
def test_collections_that_the_script_asks_for_are_left_out_after_some_steps(
    tmp_path: Path, skip_collect: bool
) -> None:
    program = """
from gc import collect
@jax.jit
def step(x): return x + 1
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase == "stop" and info["generation"] == 2))
gc.disable()
for _ in range(2): step(1.0), gc.collect(), collect(0)
early = sum(seen)
for _ in range(3): step(1.0), gc.collect(), collect(2)
show(early, sum(seen) - early)
"""
    assert ran(tmp_path, program, skip_collect=skip_collect) == [2, 0 if skip_collect else 6]


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_a_script_may_be_bound_to_cores_and_is_the_first_to_go(tmp_path: Path) -> None:
    program = """
score = int(open("/proc/self/oom_score_adj").read())
show(sorted(os.sched_getaffinity(0)), score, calls())
"""
    assert ran(tmp_path, program, cores=(0,)) == [[0], 1000, 0]
