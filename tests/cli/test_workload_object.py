"""`perfdoctor check package.module:workload`: whole runs, and what is wrong use."""

import json
from pathlib import Path

import pytest

from tests.command import perfdoctor
from tests.long import LONG
from tests.targets.workload_object.test_main import WORKLOAD

IGNORED = "competing-processes,throttling"
SLOW = """
import time
import jax, jax.numpy as jnp, numpy as np

class Slow:
    batch_size = 2

    def init(self):
        return {"w": jnp.full((64, 64), 0.01)}

    @staticmethod
    @jax.jit
    def step(state, batch):
        loss, grads = jax.value_and_grad(lambda p: jnp.tanh(batch @ p["w"]).mean())(state)
        return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads), {"loss": loss}

    def batches(self, batch_size=2):
        while True:
            time.sleep(0.004)
            yield np.ones((batch_size, 64), np.float32)

def make():
    return Slow()
"""


def test_a_batch_size_is_measured_on_the_workload_itself(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "slow.py").write_text(SLOW)
    options = ("--format", "json", "--select", "batch-size", "--budget", "90")
    answer = perfdoctor(
        *("check", "package.slow:make", *options, "--save-observation", "seen.json"), cwd=tmp_path
    )
    assert answer.returncode == 1, answer.stderr
    report = json.loads(answer.stdout)
    found = {each["check"]: each for each in report["findings"]}
    assert found["batch-size"]["gain"]["basis"] == "measured"
    assert found["batch-size"]["gain"]["low"] > 4  # 32 examples of 2 take hardly longer
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["target"]["parts"]["takes_batch_size"]
    again = perfdoctor("check", "seen.json", *options[:4], cwd=tmp_path)
    assert json.loads(again.stdout)["findings"] == report["findings"]


@LONG
def test_loading_is_moved_in_the_loop_that_perfdoctor_owns(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    options = ("--select", "etl", "--budget", "60", "--save-observation", "seen.json")
    answer = perfdoctor("check", "slow:make", *options, cwd=tmp_path)
    assert answer.returncode == 1, answer.stderr
    tried = json.loads((tmp_path / "seen.json").read_text())["tried"]
    changes = [each["fix"]["change"]["step"] for each in tried if each["check"] == "etl"]
    assert {"loading": "nowhere"} in changes or {"loading": "thread"} in changes


def test_a_benchmark_takes_a_workload(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    options = ("--budget", "40", "--format", "json")
    answer = perfdoctor("bench", "slow:make", *options, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["target"]["name"] == "slow:make"
    assert found["launches"]


WRONG = {
    "train.py:workload": "names no object; expected package.module:name; did you mean train:work",
    "package/train.py:w": "did you mean package.train:w?",
    "a-b:c": "a-b:c names no object; expected package.module:name",
    "train:": "train: names no object",
    "absent:workload": "absent:workload: there is no module 'absent' here",
    "module:nothing": "module:nothing: module has no 'nothing'",
    "module:Stepless": "is a Stepless without step(state, batch); expected an object",
    "module:Empty": "module:Empty: batches() ended at once",
}
MODULE = (
    WORKLOAD
    + """
class Stepless:
    def init(self): return 0
    def batches(self): yield 1

class Empty(Workload):
    def batches(self): return iter(())

class Raising(Workload):
    def step(self, state, batch):
        raise OSError("no data")
"""
)


@pytest.mark.parametrize(
    ("command", "name"), [*(("check", name) for name in WRONG), ("bench", "module:Stepless")]
)
def test_wrong_use_is_one_sentence(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    answer = perfdoctor(command, name, "--budget", "30", cwd=tmp_path)
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"perfdoctor: {name}") and WRONG[name] in line
    assert answer.stdout == ""


def test_what_the_users_code_raises_ends_without_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    answer = perfdoctor("check", "module:Raising", "--budget", "30", cwd=tmp_path)
    assert answer.returncode == 3
    lines = answer.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'module.py", line' in lines[1]
    assert lines[-1] == "OSError: no data"
    assert "OSError: no data" in " ".join(answer.stdout.split())


def test_a_workload_takes_no_arguments(tmp_path: Path) -> None:
    answer = perfdoctor("check", "module:w", "--", "--epochs", "1", cwd=tmp_path)
    assert answer.returncode == 2
    assert "module:w takes no arguments; only a script does" in answer.stderr
