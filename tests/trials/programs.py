"""Programs for the workers of tests: scripts with jax, and some that count by themselves."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.worker import Worker, calls_of, own_steps

LIMIT_S = 120.0
"""Generous: reached only where something is wrong."""
TRAINING = """
import os, sys
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    for _ in range(int(os.environ.get("WORK", "1"))):
        x = jnp.tanh(x @ x)
    return x

def train(x, steps):
    for _ in range(steps):
        x = step(x)
        x.block_until_ready()

print("begins")
"""
FOR_EVER = TRAINING + "train(jnp.ones((200, 200)), 10**9)"
COUNTING = """
import os, subprocess, sys, time
from pathlib import Path
from perfdoctor.counters import COMPILES, SAMPLES, STEPS, opened, rest, steps

what, *arguments, _, folder = sys.argv[1:]
counters = opened(Path(folder), STEPS)

def train(step_s=0.001, samples=8, until_step=10**9, compile_every=10**9):
    counters[SAMPLES] = int(samples)
    while True:
        for number in steps(counters):
            if number >= int(until_step):
                sys.exit("worn out")
            counters[COMPILES] += number % int(compile_every) == 0
            time.sleep(float(step_s))
        rest(counters)

def hang():
    next(steps(counters))
    time.sleep(10**6)

def breed(file):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file).write_text(str(child.pid))
    train()

globals()[what](*arguments)
"""


@dataclass
class Place:
    """A folder for programs, and how they are launched."""

    folder: Path

    def launch(self, program: str, *arguments: str, **env: str) -> Launch:
        """Of a script."""
        file = self.folder / "train.py"
        file.write_text(program)
        return Launch((str(file), *arguments), {**os.environ, **env}, self.folder)

    def scripted(
        self,
        groups: ProcessGroups,
        program: str,
        change: Change | None = None,
        function: str = "step",
        stride: int = 1,
        **env: str,
    ) -> Worker:
        """A script whose calls are counted."""
        attach = calls_of(function, change or Change())
        return Worker(groups, self.launch(program, **env), attach, soon(), stride=stride)

    def own(
        self, groups: ProcessGroups, what: str, *arguments: object, until: float | None = None
    ) -> Worker:
        """A program that counts its steps itself."""
        launch = self.launch(COUNTING, what, *map(str, arguments))
        return Worker(groups, launch, own_steps, until or soon(), tells_steps=True)

    def left(self) -> list[str]:
        """The programs that still live."""
        found = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
        return [command for command in found if str(self.folder) in command]


def soon() -> float:
    """An instant that is reached only where something is wrong."""
    return time.monotonic() + LIMIT_S


def await_calls(worker: Worker, calls: int) -> None:
    """Until it has made so many."""
    until = soon()
    while worker.counters.calls < calls:
        worker.check()
        assert time.monotonic() < until
        time.sleep(0.02)


def why_it_ends(worker: Worker) -> str:
    """What is said of a worker that ends."""
    with worker, pytest.raises(WorkerEnded) as raised:
        until = soon()
        while time.monotonic() < until:
            worker.check()
            time.sleep(0.02)
    return str(raised.value)
