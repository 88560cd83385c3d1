"""Which function dispatches operations, seen in real processes."""

import json
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perfdoctor.observe.agent.eager import (
    LONGEST_S,
    Candidate,
    EagerWatch,
    Looks,
    eager_of,
    own_frames,
    steps_of,
)

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
    print(json.dumps([told, kept]))
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


def watched(tmp_path: Path, program: str) -> Any:
    """What the watch tells of a program: its candidates, and the names of their arguments."""
    script = tmp_path / "train.py"
    script.write_text(WATCHED.format(program=program))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


def test_the_step_is_named_that_dispatches_operations(tmp_path: Path) -> None:
    told, kept = watched(tmp_path, STEP)
    function, share, call_ms = told[0]
    assert function == "train_step" and kept[0] == ["params", "x"]
    assert 0.5 < share <= 1 and call_ms > 0


def test_a_jitted_step_dispatches_none(tmp_path: Path) -> None:
    assert watched(tmp_path, STEP + "\ntrain_step = jax.jit(train_step)\n") == [[], []]


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


def code_of(name: str) -> types.CodeType:
    """Of a function of this name."""
    return compile("", "/src/train.py", "exec").replace(co_name=name, co_qualname=name)


def looks_of(*rows: tuple[str, int, int, int]) -> Looks:
    """Functions with the looks that saw them, their calls, and how deep they are."""
    looks = Looks(count=100, passed_s=2.0)
    for name, within, anew, depth in rows:
        code = code_of(name)
        looks.within[code], looks.anew[code], looks.depth[code] = within, anew, depth
        looks.at_work[code] = within // 10 if name == "gather" else within
    return looks


def test_the_outermost_function_that_is_called_anew_is_the_step() -> None:
    looks = looks_of(
        ("layer", 80, 40, 3), ("main", 100, 0, 0), ("step", 90, 20, 1), ("<listcomp>", 90, 20, 1)
    )
    assert [code.co_name for code in steps_of(looks)] == ["step", "layer"]


def test_a_call_that_is_over_before_the_next_look_is_not_timed() -> None:
    assert steps_of(looks_of(("helper", 21, 20, 1))) == []
    assert steps_of(looks_of(("once", 100, 1, 1))) == []


def test_a_function_that_waits_for_others_dispatches_nothing() -> None:
    assert steps_of(looks_of(("gather", 90, 10, 1))) == []


def test_a_call_takes_its_share_of_the_time_between_two() -> None:
    looks = looks_of(("step", 90, 20, 1))
    eager = eager_of(steps_of(looks)[0], looks)
    assert eager.share == 0.9
    assert eager.call_ms == pytest.approx(90.0)


def test_only_the_programs_own_frames_count() -> None:
    stack = own_frames(sys._getframe())
    assert stack.own[-1].f_code.co_name == "test_only_the_programs_own_frames_count"
    assert not stack.in_operation and not stack.is_tracing
    del stack
