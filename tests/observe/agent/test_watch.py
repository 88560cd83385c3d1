"""The agent in a real process: the program runs as without it, and is recorded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_a_training_run_is_traced_when_steady_and_then_asked_to_stop(tmp_path: Path) -> None:
    answer = watched(tmp_path, TRAINING)
    assert (answer.returncode, answer.stdout) == (0, "begins\nends\n")
    seen = recording(tmp_path)
    assert seen["window"]["steady"]
    assert seen["window"]["end_ns"] > seen["window"]["start_ns"]
    assert {event["function"] for event in seen["compiles"]} >= {"<lambda>"}
    assert len(seen["samples"]) > 20
    assert seen["live_objects"] > 1000
    assert list((tmp_path / "recording" / "trace").rglob("*.xplane.pb"))
