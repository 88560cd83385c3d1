"""`perfdoctor workload train.py`: a module that `perfdoctor check` can examine."""

import json
from pathlib import Path

import pytest

from tests.command import perfdoctor
from tests.long import long_but

IGNORED = "competing-processes,throttling"
BUDGET_S = "300"
"""Time for the pairs of the first finding on a slow machine too."""
PLAIN = """
import time
import jax, jax.numpy as jnp
import numpy as np

@jax.jit
def step(params, x):
    loss_of = lambda p: jnp.tanh(jnp.tanh(x @ p["w"]) @ p["w"]).mean()
    loss, grads = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

def load():
    time.sleep(0.02)
    return np.ones((64, 256), np.float32)

params = {"w": jnp.full((256, 256), 0.01)}
for number in range(1_000_000):
    params, loss = step(params, load())
    if number % 50 == 0:
        print(float(loss))
"""
SCRIPTS = {
    "flat": PLAIN,
    "guarded": PLAIN.replace("params = {", "def main():\n  params = {")
    .replace("\nfor number", "\n  for number")
    .replace("\n    params, loss", "\n      params, loss")
    .replace("\n    if number", "\n      if number")
    .replace("\n        print", "\n        print")
    + '\nif __name__ == "__main__":\n    main()\n',
}


@pytest.mark.parametrize("name", long_but(["flat"], SCRIPTS))
def test_a_plain_script_becomes_a_workload_that_check_takes(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    (tmp_path / "workload.py").touch()  # as a shell does for `> workload.py`
    drafted = perfdoctor("workload", "train.py", "--script-output", "log", cwd=tmp_path)
    assert drafted.returncode == 0, drafted.stderr
    assert "MADE UP" not in drafted.stdout and "LEFT TO DO" not in drafted.stdout
    (tmp_path / "workload.py").write_text(drafted.stdout)
    options = ("--format", "json", "--ignore", IGNORED, "--budget", BUDGET_S)
    answer = perfdoctor("check", "workload:workload", *options, cwd=tmp_path)
    report = json.loads(answer.stdout)
    assert report["target"] == {"kind": "workload", "name": "workload:workload", "args": []}
    assert report["findings"][0]["check"] == "etl", answer.stderr
    assert report["findings"][0]["gain"]["basis"] == "measured"
    assert report["findings"][0]["gain"]["low"] > 2
    assert answer.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "a draft is made of a script; expected a .py file or -m, not nothing"),
        (("w.toml",), "expected a .py file or -m, not w.toml"),
        (("absent.py",), "absent.py: no such file"),
        (("-m", "absent.module"), "-m absent.module is not in this folder"),
    ],
)
def test_what_is_no_script_is_wrong_usage(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    answer = perfdoctor("workload", *arguments, cwd=tmp_path)
    assert answer.returncode == 2
    assert says in answer.stderr
    assert answer.stdout == ""


def test_a_script_that_does_not_train_is_no_workload(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('no training')")
    answer = perfdoctor("workload", "train.py", "--budget", "20", cwd=tmp_path)
    assert answer.returncode == 3
    assert "no training step was seen, so no workload can be drafted" in answer.stderr
