"""`perfdoctor bench`: the command, as a user calls it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from perfdoctor.schema.benchmark import Benchmark
from tests.command import LIMIT_S, perfdoctor
from tests.scripts_that_fail import FOR_EVER, TRAINING

TINY = (
    '[model]\nname = "mlp"\nwidth = 64\n[data]\nexamples = 500\nimage_size = 8\n'
    "[training]\nsteps = 10\n"
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Benchmark]:
    """What a benchmark of a small workload prints, and what it saves."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "tiny.toml").write_text(TINY)
    answer = perfdoctor("bench", "tiny.toml", "--budget", "90", "--save", "a.json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout, msgspec.json.decode((folder / "a.json").read_bytes(), type=Benchmark)


def test_a_workload_is_measured_in_several_launches(saved: tuple[str, Benchmark]) -> None:
    text, found = saved
    assert found.complete and len(found.launches) >= 2
    names = {each.name for each in found.metrics}
    assert {"step_time", "compile_time", "first_step", "peak_memory", "throughput"} <= names
    assert all(launch.steps > 0 and launch.compiles > 0 for launch in found.launches)
    assert found.exact is not None and found.exact.flops
    assert "step time" in text and "launch  1" in text


def test_what_is_saved_says_how_to_measure_it_again(saved: tuple[str, Benchmark]) -> None:
    _, found = saved
    assert found.recipe.name == "tiny.toml"
    assert found.recipe.workload is not None and found.recipe.workload.model.width == 64
    assert found.fingerprint.jaxlib == found.environment["packages"]["jaxlib"]


def test_a_script_is_measured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING + FOR_EVER)
    answer = perfdoctor(
        "bench", "train.py", "--budget", "40", "--format", "json", "--", "-v", cwd=tmp_path
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["schema"] == "perfdoctor.benchmark/1"
    assert found["target"] == {"kind": "script", "name": "train.py", "args": ["-v"]}
    assert found["launches"]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print('no jax')", "never imported jax"),
        ("import jax\nraise ValueError('no data')", "no data"),
    ],
)
def test_nothing_to_measure_ends_in_a_sentence(program: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    options = ("--budget", "20", "--save", "a.json", "--script-output", os.devnull)
    answer = perfdoctor("bench", "train.py", *options, cwd=tmp_path)
    assert answer.returncode == 3
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1 and why in answer.stderr
    assert not (tmp_path / "a.json").exists()


def test_an_observation_can_not_be_measured(tmp_path: Path) -> None:
    observations = Path(__file__).parent.parent / "observations"
    answer = perfdoctor("bench", str(observations / "healthy.json"))
    assert answer.returncode == 2
    assert "a saved observation can't be run" in answer.stderr


def test_an_interruption_keeps_the_launches_that_were_measured(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    file = tmp_path / "a.json"
    command = [sys.executable, "-m", "perfdoctor", "bench", "tiny.toml", "--save", "a.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + LIMIT_S
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3
    assert "interrupted" in errors
    found = msgspec.json.decode(file.read_bytes(), type=Benchmark)
    assert not found.complete and found.launches
