"""The whole way of a script whose step is replayed, with the options that a user has."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfdoctor.doctor import is_replayable
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Failure
from tests.command import perfdoctor
from tests.recorded import recorded

IGNORED = "competing-processes,throttling"
"""What else runs on the machine while tests do is no matter of theirs."""
READING = """
import time
import jax, jax.numpy as jnp

@jax.jit
def step(params, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.tanh(jnp.tanh(x @ p) @ p).mean())(params)
    return params - 0.1 * grads, loss

params, x = jnp.full((384, 384), 0.01), jnp.ones((768, 384))
while True:
    time.sleep(0.006)
    params, loss = step(params, x)
    print(float(loss))
"""
"""It waits for each step before it does what it could do meanwhile."""


def checked(folder: Path, *options: str) -> dict[str, Any]:
    """The report on it, and the observation beside it."""
    (folder / "train.py").write_text(READING)
    answer = perfdoctor(
        *("check", "train.py", "--budget", "60", "--format", "json", "--ignore", IGNORED),
        *("--save-observation", "seen.json", "--script-output", "log", *options),
        cwd=folder,
    )
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("replayed")
    return folder, checked(folder)


def gains(report: dict[str, Any]) -> dict[str, Any]:
    """By check."""
    return {each["check"]: each["gain"] for each in report["findings"]}


def test_the_step_is_told_alone_and_emulated(replayed: tuple[Path, dict[str, Any]]) -> None:
    steps = replayed[1]["steps"]
    assert 0 < steps["alone_ms"] < steps["emulated_ms"]
    assert steps["untraced_ms"] > 5.0


def test_what_reading_the_loss_costs_is_measured_on_the_step(
    replayed: tuple[Path, dict[str, Any]],
) -> None:
    report = replayed[1]
    gain, why = gains(report).get("host-sync"), report["steps"]["not_replayed"]
    if why is None:
        assert gain is not None and gain["basis"] == "replayed"
        assert gain["low"] <= gain["speedup"] <= gain["high"]
    else:  # where the machine has other work, the emulation may not be faithful, and says so
        assert "something that the replay lacks matters" in why
        assert gain is None or gain["basis"] == "estimated"


def test_what_is_saved_has_the_roles_and_no_values(replayed: tuple[Path, dict[str, Any]]) -> None:
    text = (replayed[0] / "seen.json").read_bytes()
    seen = msgspec.json.decode(text, type=Observation)
    assert seen.calls is not None and seen.alone is not None
    (call,) = seen.calls.calls
    found = {leaf.argument: (leaf.role, leaf.kind, leaf.shape) for leaf in call.leaves}
    assert found == {
        "params": ("state", "device", (384, 384)),
        "x": ("constant", "device", (768, 384)),
    }
    assert len(text) < 1_000_000
    assert b".raw" not in text and b"capture.json" not in text


def test_what_was_saved_says_the_same_again(replayed: tuple[Path, dict[str, Any]]) -> None:
    folder, before = replayed
    answer = perfdoctor("check", "seen.json", "--format", "json", "--ignore", IGNORED, cwd=folder)
    after = json.loads(answer.stdout)
    assert (after["findings"], after["steps"]) == (before["findings"], before["steps"])


def test_without_a_replay_nothing_is_told_of_it(tmp_path: Path) -> None:
    report = checked(tmp_path, "--no-replay")
    steps = report["steps"]
    assert (steps["alone_ms"], steps["emulated_ms"], steps["not_replayed"]) == (None,) * 3
    assert {gain["basis"] for gain in gains(report).values() if gain} <= {"estimated"}


@pytest.mark.parametrize(
    ("kind", "was_seen", "is_so"),
    [(None, False, True), ("hung", True, True), ("hung", False, False), ("raised", True, False)],
)
def test_a_run_that_had_to_be_stopped_is_replayed_where_its_calls_were_seen(
    kind: Any, was_seen: bool, is_so: bool
) -> None:
    seen = recorded("healthy")
    failure = Failure(stage="run", kind=kind, message="", seconds=60.0) if kind else None
    calls = StepCalls(calls=(), time_ms=1.0, steps=4) if was_seen else None
    seen = msgspec.structs.replace(seen, failure=failure, calls=calls)
    assert is_replayable(seen) == is_so
