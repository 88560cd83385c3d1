"""Which function dispatches operations, seen in real processes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perfdoctor.observe.agent.beside import Beside, Worker
from perfdoctor.observe.agent.eager import (
    FEWEST_LOOKS,
    GAP_S,
    LONGEST_S,
    SHORT_GAP_S,
    Candidate,
    EagerWatch,
    with_work_beside,
)
from perfdoctor.observe.agent.frames import own_frames, undecorated
from perfdoctor.observe.agent.looks import Looks, eager_of
from tests.observe.agent.test_looks import code_of, looks_of

WATCHED = """
import json, sys, threading, time
import jax, jax.numpy as jnp
from perfdoctor.observe.agent.eager import EagerWatch

ended = threading.Event()
watch = EagerWatch(ended.wait, jax)

def look():
    watch.look()
    found = [each.eager for each in watch.candidates]
    told = [(each.function, each.share, each.call_ms) for each in found]
    kept = [sorted(each.arguments.by_name) for each in watch.candidates]
    lines = [each.reads for each in found]
    reads = [each and (each.function, each.line, each.share) for each in lines]
    print(json.dumps([told, kept, reads]))
    ended.set()

{program}

params = {{"w": jnp.ones((64, 64)), "b": jnp.zeros(64)}}
params = train_step(params, jnp.ones((8, 64)))
threading.Thread(target=look).start()
while not ended.is_set():
    params = train_step(params, jnp.ones((8, 64)))
"""
STEP = """
def layer(params, x):
    return jnp.tanh(x @ params["w"] + params["b"])

def loss_of(params, x):
    return sum((layer(params, x) ** 2).mean() for _ in range(4))

def train_step(params, x):
    grads = jax.grad(loss_of)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
"""


READS = """
act = jax.jit(lambda params, x: (params, params["w"].reshape(-1)[:500]))

def train_step(params, x):
    params, action = act(params, x)
    for n in range(len(action)):
        one = action[n]
        int(one)
    return params
"""


def watched(tmp_path: Path, program: str) -> Any:
    """What the watch tells of a program: its candidates, and the names of their arguments."""
    script = tmp_path / "train.py"
    script.write_text(WATCHED.format(program=program))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


def test_the_step_is_named_that_dispatches_operations(tmp_path: Path) -> None:
    told, kept, reads = watched(tmp_path, STEP)
    assert reads == [None] * len(told)
    function, share, call_ms = told[0]
    assert function == "train_step" and kept[0] == ["params", "x"]
    assert 0.5 < share <= 1 and call_ms > 0


def test_a_jitted_step_dispatches_none(tmp_path: Path) -> None:
    assert watched(tmp_path, STEP + "\ntrain_step = jax.jit(train_step)\n") == [[], [], []]


@pytest.mark.parametrize("reading", ["int(one)", "one.item()"])
def test_an_array_that_is_read_element_by_element_is_seen(tmp_path: Path, reading: str) -> None:
    told, _, reads = watched(tmp_path, READS.replace("int(one)", reading))
    (function, line, share), lines = reads[0], (tmp_path / "train.py").read_text().splitlines()
    assert told[0][0] == function == "train_step"
    assert lines[line - 1].strip() in ("one = action[n]", reading) and share > 0.5


def test_a_program_that_dispatches_no_more_is_not_looked_at_for_long() -> None:
    """Its set-up dispatched operations: a run of some seconds must not be over meanwhile."""
    gaps: list[float] = []

    def is_over(seconds: float) -> bool:
        gaps.append(seconds)
        time.sleep(seconds)
        return False

    watch = EagerWatch(is_over)
    watch._seen = Looks(count=100, in_jax=90)
    looking = threading.Thread(target=watch.look)
    looking.start()
    looking.join()
    assert watch.candidates == []
    assert sum(gaps) < LONGEST_S / 2


@pytest.mark.parametrize(("step_ms", "longest_s"), [(None, 6.0), (10.0, 2.0), (500.0, 4.0)])
def test_it_is_looked_at_for_some_of_its_steps(step_ms: float | None, longest_s: float) -> None:
    """Where no function of the program's is called anew."""
    waited: list[float] = []

    class Patient(EagerWatch):
        def _looks(self, gap_s: float, seconds: float, longest_s: float) -> Looks:
            waited.append(longest_s)
            return Looks(count=100, in_jax=100)

    Patient(lambda _: False).look(step_ms=step_ms)
    assert waited[-1] == longest_s


def test_a_program_dispatches_operations_if_looks_find_it_there() -> None:
    watch = EagerWatch(lambda _: True)
    assert not watch.dispatches
    watch._seen = Looks(count=FEWEST_LOOKS, in_jax=FEWEST_LOOKS // 2)
    assert watch.dispatches
    watch._seen = Looks(count=FEWEST_LOOKS - 1, in_jax=FEWEST_LOOKS - 1)
    assert not watch.dispatches  # too few to tell
    watch._seen = Looks(count=100, in_jax=50)
    watch.look()
    watch.forget()
    assert watch.dispatches


def test_what_was_found_stands_when_the_program_has_ended() -> None:
    watch = EagerWatch(lambda _: True)
    found = Candidate(eager_of(code_of("step"), looks_of(("step", 90, 20, 1))), Mock())
    watch.candidates = [found]
    watch.look()
    assert watch.candidates == [found]


def test_what_was_seen_before_the_steps_is_forgotten() -> None:
    watch = EagerWatch(lambda _: True)
    watch._seen = Looks(count=100, in_jax=90)
    watch.forget()
    assert watch._seen.in_jax_share == 0


def test_only_the_programs_own_frames_count() -> None:
    stack = own_frames(sys._getframe())
    assert stack.own[-1].f_code.co_name == "test_only_the_programs_own_frames_count"
    assert not stack.in_operation and not stack.is_tracing
    del stack


def around(function: Callable[..., Any]) -> Callable[..., Any]:
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return decorated


def test_a_decorator_is_no_function_of_its_own_but_by_itself() -> None:
    def inner() -> tuple[list[str], list[str]]:
        own = own_frames(sys._getframe()).own
        names = [frame.f_code.co_name for frame in undecorated(own)][-2:]
        return names, [frame.f_code.co_name for frame in undecorated(own[:-1])][-1:]

    assert around(inner)() == (
        ["test_a_decorator_is_no_function_of_its_own_but_by_itself", "inner"],
        ["decorated"],
    )


@pytest.mark.parametrize(("anew", "gap_s"), [(80, SHORT_GAP_S), (20, GAP_S)])
def test_calls_that_are_too_short_are_looked_at_more_often(anew: int, gap_s: float) -> None:
    gaps: list[float] = []
    usual_s = sys.getswitchinterval()

    class Short(EagerWatch):
        def _looks(self, gap_s: float, seconds: float, longest_s: float) -> Looks:
            gaps.append(gap_s)
            return replace(looks_of(("step", 90, anew, 1)), in_jax=100)

    Short(lambda _: False).look()
    assert gaps[-1] == gap_s
    assert sys.getswitchinterval() == usual_s


@pytest.mark.parametrize(("work_ms", "kept_ms"), [(0.6, 0.6), (9.0, 0.0)])
def test_what_others_work_for_each_call_is_kept_unless_they_may_never_rest(
    work_ms: float, kept_ms: float
) -> None:
    eager = eager_of(code_of("step"), looks_of(("step", 90, 100, 1)))
    child = Worker(7, None, "7", work_ms / 3)
    beside = Beside(threads_cpu_ms=work_ms, children_cpu_ms=child.cpu_ms, workers=(child,))
    found = with_work_beside(eager, beside)
    assert (found.threads_cpu_ms, found.children_cpu_ms) == (kept_ms, kept_ms / 3)
    assert found.children == (kept_ms > 0)
    assert found.call_ms == eager.call_ms
