"""The agent in a real process: the program runs as without it, and is recorded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfdoctor.schema.digest import Digest

TRAINING = """
import jax, jax.numpy as jnp, sys
step = jax.jit(lambda p, x: p + jnp.tanh(x @ p).mean(), donate_argnums=0)
p, x, steps = jnp.ones((64, 64)), jnp.ones((8, 64)), 0
print("begins")
try:
    while True:
        p = step(p, x)
        steps += 1
        if steps % 100 == 0:
            p.block_until_ready()
finally:
    print("ends")
"""


def watched(tmp_path: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A module run under the agent, with a short window."""
    (tmp_path / "patient.py").write_text(program)
    folder = tmp_path / "recording"
    folder.mkdir()
    command = [sys.executable, "-m", "perfdoctor.observe.agent", str(folder), "30", "0.5"]
    return subprocess.run(
        [*command, "patient", *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def recording(tmp_path: Path) -> dict[str, Any]:
    """What the agent wrote."""
    found: dict[str, Any] = json.loads((tmp_path / "recording" / "recording.json").read_text())
    return found


def test_a_program_without_jax_runs_as_by_itself(tmp_path: Path) -> None:
    program = "import sys; print(sys.argv[1:], __name__); sys.exit(7)"
    answer = watched(tmp_path, program, "--epochs", "1")
    assert (answer.returncode, answer.stdout) == (7, "['--epochs', '1'] __main__\n")
    assert answer.stderr == ""
    assert recording(tmp_path)["window"] is None


def test_an_exception_of_the_program_is_its_own(tmp_path: Path) -> None:
    answer = watched(tmp_path, "raise ValueError('mine')")
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1] == "ValueError: mine"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run that was watched until it was asked to stop."""
    folder = tmp_path_factory.mktemp("trained")
    answer = watched(folder, TRAINING)
    assert (answer.returncode, answer.stdout) == (0, "begins\nends\n")
    return folder


def test_a_training_run_is_traced_when_steady_and_then_asked_to_stop(trained: Path) -> None:
    seen = recording(trained)
    assert seen["window"]["steady"]
    assert seen["window"]["end_ns"] > seen["window"]["start_ns"]
    assert {event["function"] for event in seen["compiles"]} >= {"<lambda>"}
    assert len(seen["samples"]) > 20
    assert seen["live_objects"] > 1000
    assert list((trained / "recording" / "trace").rglob("*.xplane.pb"))


def test_its_memory_is_sampled_over_the_window(trained: Path) -> None:
    seen = recording(trained)
    instants = [sample["at_s"] for sample in seen["memory_samples"]]
    assert len(instants) >= 3
    assert instants == sorted(instants)
    assert [8, 64] in [each["shape"] for each in seen["arrays"]]
    assert {len(each["counts"]) for each in seen["arrays"]} == {len(instants)}
    assert min(seen["peak_rss_bytes"], seen["rss_bytes"]) > 0


def test_its_threads_are_counted(trained: Path) -> None:
    threads = recording(trained)["threads"]
    assert threads["ran"] >= 1
    assert sum(threads["by_name"].values()) >= threads["ran"]
    assert threads["children"] == 0


def test_its_programs_are_written_down(trained: Path) -> None:
    seen = recording(trained)
    (step,) = (each for each in seen["executables"] if each["name"] == "jit__lambda")
    assert step["alias_bytes"] == 4 * 64 * 64
    assert (trained / "recording" / "executables" / step["file"]).exists()
    assert seen["failures"] == {}


def test_the_digest_understands_what_was_recorded(trained: Path) -> None:
    folder = trained / "recording"
    command = [sys.executable, "-m", "perfdoctor.observe.digest", str(folder)]
    subprocess.run(command, check=True)
    found = msgspec.json.decode((folder / "digest.json").read_bytes(), type=Digest)
    assert found.steps is not None and found.executable is not None
    assert (found.steps.function, found.steps.threads) == ("<lambda>", 1)
    assert len(found.steps.busy_shares) == recording(trained)["devices"]
    assert "executable" not in found.not_measured


RESTING = TRAINING.replace("try:", "p = step(p, x)\nimport time\ntime.sleep(2.5)\ntry:", 1)


def test_a_set_up_that_rests_is_not_taken_for_the_training(tmp_path: Path) -> None:
    assert watched(tmp_path, RESTING).stdout == "begins\nends\n"
    folder = tmp_path / "recording"
    assert (folder / "window-closed-2").exists()
    (trace,) = (folder / "trace").rglob("*.xplane.pb")
    assert b"PjitFunction(" in trace.read_bytes()
