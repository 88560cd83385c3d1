"""What a change does to the loop, told by what the workload sees of it, in a process of its own."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.command import ROOT

PROBE = """
import json, sys, threading, itertools
import jax, jax.numpy as jnp, numpy as np
from perfdoctor.schema.fix import Change
from perfdoctor.targets.workload_object.callbacks import leave_out_callbacks
from perfdoctor.targets.workload_object.finding import Given
from perfdoctor.targets.workload_object.loop import WorkloadLoop

step_of_change, log_every = json.loads(sys.argv[1]), int(sys.argv[2])
seen = {"reads": [], "state": [], "batch": [], "same": [], "threads": [], "logged": 0, "called": 0}

if step_of_change.get("program") == "no-callbacks":
    leave_out_callbacks()
fetch = jax.device_get
def counted(tree):
    seen["logged"] += 1
    return fetch(tree)
jax.device_get = counted

def called(x):
    seen["called"] += 1
    return np.float32(x)

@jax.jit
def update(w, x):
    read = jax.pure_callback(called, jax.ShapeDtypeStruct((), np.float32), x.sum())
    return w + 1.0, w[0, 0] + 0 * read

def step(state, batch):
    kinds = [type(leaf).__name__ for leaf in (batch["x"], batch["table"])]
    seen["batch"].append(kinds)
    seen["same"].append(id(batch["table"]))
    seen["state"].append(type(state).__name__)
    w, loss = update(state, batch["x"])
    if mode == "reads":
        seen["reads"].append([float(loss), loss.item(), float(np.asarray(loss)), f"{loss:.0f}"])
    return (np.asarray(w) if mode == "fetches" else w), loss

def eager(state, batch):
    seen["state"].append(type(state).__name__)
    return state + batch["x"].sum(), {"loss": state.sum()}

def batches(batch_size=2):
    table = np.arange(4.0)
    for n in itertools.count():
        seen["threads"].append(threading.current_thread().name)
        yield {"x": np.full((batch_size, 3), n, np.float32), "table": table}

mode = sys.argv[3]
function = eager if mode == "eager" else step
given = Given("m:w", lambda: jnp.ones((2, 2)), function, batches, None, True, log_every)
loop = WorkloadLoop(given, Change(step=step_of_change))
loop.run_each(range(12))
loop.wait()
loop.close()
print(json.dumps(seen))
"""


def seen(change: dict[str, Any], mode: str = "", log_every: int = 50) -> dict[str, Any]:
    """What the workload saw in 15 steps, the first three of them a set-up."""
    answer = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(change), str(log_every), mode],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_without_a_change_all_is_as_the_workload_has_it() -> None:
    found = seen({}, "reads", log_every=5)
    assert [each[0] for each in found["reads"]] == [1.0 + n for n in range(15)]
    assert all(len({str(float(one)) for one in each}) == 1 for each in found["reads"])
    assert found["batch"] == [["ndarray", "ndarray"]] * 15
    assert set(found["threads"]) == {"MainThread"}
    assert found["logged"] == 2  # of the twelve steps behind the set-up
    assert found["called"] == 15


def test_what_is_read_rarely_is_what_was_read_before() -> None:
    found = seen({"waits": 0.1}, "reads", log_every=5)
    losses = [each[0] for each in found["reads"]]
    assert losses[:2] == [1.0, 2.0]
    assert losses[2:9] == [2.0] * 7
    assert losses[9:] == [10.0] * 6
    assert [each[1:] for each in found["reads"]] == [[x, x, f"{x:.0f}"] for x in losses]
    assert found["logged"] == 1


def test_a_state_that_is_fetched_stays_on_the_device() -> None:
    assert seen({}, "fetches")["state"][1:] == ["ndarray"] * 14
    found = seen({"resident": "state", "waits": 0.0}, "fetches")
    assert found["state"] == ["ArrayImpl"] * 15


def test_what_is_the_same_in_each_batch_is_put_on_the_device_once() -> None:
    found = seen({"resident": "state"})
    assert found["batch"][:3] == [["ndarray", "ndarray"]] * 3
    assert found["batch"][3:] == [["ndarray", "ArrayImpl"]] * 12
    assert len(set(found["same"][3:])) == 1


def test_a_thread_prepares_batches_and_puts_them_on_the_device() -> None:
    found = seen({"loading": "thread"})
    assert set(found["threads"]) == {"prefetch"}
    assert found["batch"] == [["ArrayImpl", "ArrayImpl"]] * 15


def test_one_batch_is_loaded_where_loading_costs_nothing() -> None:
    assert len(seen({"loading": "nowhere"})["threads"]) == 1


@pytest.mark.parametrize("change", [{"jitted": "whole"}, {"donated": True}])
def test_a_step_is_jitted_as_a_whole(change: dict[str, Any]) -> None:
    assert len(seen(change, "eager")["state"]) < 5  # traced, not called
    assert len(seen({}, "eager")["state"]) == 15


def test_callbacks_are_left_out() -> None:
    assert seen({"program": "no-callbacks"})["called"] == 0
