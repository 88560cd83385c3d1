"""The process that runs a workload's loop: what it tells, refuses, shows of the user's errors."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from perfdoctor.schema.fix import Change
from perfdoctor.schema.parts import Parts, Told
from perfdoctor.targets.named import launch
from tests.command import ROOT

WORKLOAD = """
import itertools, sys
import jax, jax.numpy as jnp, numpy as np

ENOUGH = 8

class Workload:
    def init(self):
        return {"w": jnp.ones((4, 4)), "count": 0}

    @staticmethod
    @jax.jit
    def step(state, batch):
        loss = (batch["x"] @ state["w"]).mean()
        return {"w": 0.9 * state["w"], "count": state["count"] + 1}, {"loss": loss}

    def batches(self, batch_size=3):
        for _ in range(5):
            yield {"x": np.ones((batch_size, 4), np.float32)}

class Counted(Workload):
    '''It ends after some steps, as no workload should.'''

    def __init__(self):
        self.steps, self.seen = 0, []

    def step(self, state, batch):
        self.steps += 1
        if self.steps > ENOUGH:
            raise SystemExit(0)
        return Workload.step(state, batch)

workload = Counted()
"""


@dataclass
class Answer:
    """Of a loop that has ended."""

    code: int
    told: Told | None
    errors: str


def run(folder: Path, source: str, change: Change | None = None, name: str = "workload") -> Answer:
    """A module's workload, until it ends by itself."""
    (folder / "module.py").write_text(source)
    told = folder / "told"
    started = launch(f"module:{name}", change or Change(), folder / "orders.json", told)
    answer = subprocess.run(
        [sys.executable, *started.command],
        env={**started.env, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = msgspec.json.decode(told.read_bytes(), type=Told) if told.exists() else None
    return Answer(answer.returncode, found, answer.stderr)


def test_what_a_workload_is_made_of_is_told(tmp_path: Path) -> None:
    answer = run(tmp_path, WORKLOAD)
    assert answer.code == 0, answer.errors
    assert answer.told == Told(
        parts=Parts(batch_size=3, takes_batch_size=True, is_jitted=False, hands_over_again=True)
    )


CHANGES = [
    {"donated": True},
    {"jitted": "whole"},
    {"loading": "thread"},
    {"loading": "nowhere"},
    {"resident": "state"},
    {"waits": 0.02},
    {"waits": 0.0, "resident": "state", "loading": "thread", "donated": True},
    {"program": "batch-3-to-32"},
    {"program": "no-callbacks"},
    {"program": "float32"},
]


@pytest.mark.parametrize("step", CHANGES, ids=str)
def test_each_change_can_be_made_to_the_loop(tmp_path: Path, step: dict[str, object]) -> None:
    source = WORKLOAD.replace("workload = Counted()", ENDING)
    answer = run(tmp_path, source, Change(step=step))  # type: ignore[arg-type]
    assert answer.code == 0, answer.errors
    assert answer.told is not None and answer.told.parts is not None
    assert answer.told.parts.batch_size == (32 if "batch-3-to-32" in step.values() else 3)


ENDING = """
class Ending(Workload):
    '''Its batches end the program, which each change of the step leaves as they are.'''

    def batches(self, batch_size=3):
        yield from itertools.islice(itertools.cycle(super().batches(batch_size)), 12)
        raise SystemExit(0)

    init = Workload.init

if "nowhere" in open("orders.json").read():
    Ending.log_every = 5
    def leave(metrics):
        raise SystemExit(0)
    jax.device_get = leave
workload = Ending()
"""

REFUSED = {
    "batches() ended at once": "workload.batches = lambda: iter(())",
    "batches() ended at once; expected an iterator with at least one batch, a new one at each": (
        "once = iter(list(Workload().batches()))\nworkload.batches = lambda: once"
    ),
    "batches() gave an int; expected an iterator": "workload.batches = lambda: 3",
    "step() gave a dict; expected (state, metrics)": "workload.step = lambda state, batch: state",
    "step() gave a tuple of 3; expected": "workload.step = lambda state, batch: (state, 0, 0)",
    "init() gave a Plain, which JAX does not know as a pytree": (
        "class Plain: pass\nworkload.init = Plain"
    ),
    "init() gave a dict with a Plain at ['model'], which": (
        "class Plain: pass\nworkload.init = lambda: {'model': Plain()}"
    ),
    "the second step() changed the state's ['w'] from float32[5, 4] to float32[6, 4]": (
        "workload.step = lambda s, b: ({'w': jnp.concatenate([s['w'], s['w'][:1]])}, 0)"
    ),
    "the second step() changed the state's [1] from nothing to float32[]": (
        "workload.step = lambda s, b: ([jnp.ones(()) for _ in range(len(s) + 1)], 0)\n"
        "workload.init = lambda: []"
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_a_workload_that_no_loop_can_run_is_refused(tmp_path: Path, says: str) -> None:
    answer = run(tmp_path, f"{WORKLOAD}\nworkload = Workload()\n{REFUSED[says]}")
    assert answer.code == 2
    assert answer.told is not None and answer.told.refused is not None, answer.errors
    assert says in answer.told.refused
    assert answer.errors == ""  # perfdoctor itself says it


@pytest.mark.parametrize("part", ["init", "step", "batches"])
def test_what_the_users_code_raises_is_shown_from_its_own_line_on(
    tmp_path: Path, part: str
) -> None:
    source = (
        f"{WORKLOAD}\ndef fails(*given):\n    raise OSError('no data')\nworkload.{part} = fails"
    )
    answer = run(tmp_path, source)
    assert answer.code == 1
    lines = answer.errors.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'module.py", line' in lines[1] and lines[1].endswith("in fails")
    assert lines[-1] == "OSError: no data"
