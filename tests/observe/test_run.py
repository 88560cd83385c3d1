"""Programs that run under the agent."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from perfdoctor.observe import following
from perfdoctor.observe.following import Following, Within, tells_more
from perfdoctor.observe.in_turn import Running
from perfdoctor.observe.run import Watched, watch
from perfdoctor.observe.session import reasons
from perfdoctor.processes import ProcessGroups
from perfdoctor.protocol import OPENED, RECORDING
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.launch import Launch
from tests.recorded import recorded

TRAINING = """
import sys, time
from pathlib import Path
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x @ x)

def train(x, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(10):
            x = step(x)
        x.block_until_ready()

print("begins", flush=True)
"""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of less than a second."""
    monkeypatch.setattr(following, "WINDOW_S", 0.6)


def watched(
    folder: Path,
    program: str,
    limit_s: float = 60.0,
    output: int | None = None,
    longest_s: float | None = None,
) -> tuple[Watched, list[str]]:
    """A script that was watched, and what was said meanwhile; nothing of it is left."""
    (folder / "patient.py").write_text(program)
    said: list[str] = []
    launch = Launch(command=("patient.py",), env=dict(os.environ), folder=folder, output=output)
    with ProcessGroups() as groups:
        within_s = Within(limit_s, longest_s or limit_s)
        found = watch(launch, groups, within_s, said.append, None)
        assert (groups._children, groups._folders) == ([], [])
    return found, said


def test_a_run_that_goes_on_is_ended_once_enough_was_seen(short: None, tmp_path: Path) -> None:
    seen, said = watched(tmp_path, TRAINING + "train(jnp.ones((99, 99)), 600)")
    assert seen.failure is None
    assert seen.digest is not None and seen.digest.steps is not None
    assert seen.digest.steps.function == "step"
    assert seen.recording is not None and seen.recording.own == [str(tmp_path)]
    assert seen.load is not None and seen.gpus is not None
    assert "reading the trace" in said


def test_a_run_that_ends_by_itself_is_understood_too(short: None, tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, TRAINING + "train(jnp.ones((99, 99)), 5)\nsys.exit(3)")
    assert seen.recording is not None and seen.recording.window is not None
    assert seen.digest is not None


def test_collections_of_a_run_that_ends_before_any_step_is_traced_are_told(tmp_path: Path) -> None:
    collecting = """
import gc
from perfdoctor.observe.agent import waiting
waiting.GAP_S = 1e9  # it ends before a window is opened, whatever the machine does meanwhile
gc.freeze()
x, kept, until = jnp.ones((99, 99)), [[] for _ in range(20_000)], time.monotonic() + 3
while time.monotonic() < until:
    x = step(x).block_until_ready()
    gc.collect()
"""
    seen, _ = watched(tmp_path, TRAINING + collecting)
    assert seen.recording is not None and seen.recording.window is None
    assert seen.digest is not None and seen.digest.garbage is not None
    heap, (worst, *_) = seen.digest.garbage, seen.digest.garbage.collections
    assert (worst.explicit, worst.generation) == (True, 2)
    assert worst.place.endswith("patient.py:26")
    assert heap.live_objects > 10_000 and any(heap.thresholds)


def test_its_output_goes_where_it_is_wanted(short: None, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as file:
        watched(tmp_path, TRAINING + "train(jnp.ones((99, 99)), 600)", output=file.fileno())
    assert (tmp_path / "output").read_text() == "begins\n"


def test_a_program_without_jax_is_told_from_one_that_failed(tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, "print('nothing to do with it')")
    assert (seen.failure, seen.recording, seen.digest) == (None, None, None)
    assert seen.ended is not None and seen.ended.endswith("never imported jax")
    assert set(reasons(seen).values()) == {seen.ended}


def test_a_program_that_raises_before_its_steps_failed(tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, "import jax\nraise ValueError('no such\\nfile')")
    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.message) == ("raised", "ValueError: no such")


def test_a_program_that_makes_no_step_in_time_hung(short: None, tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, "import time\ntime.sleep(600)", limit_s=2.0)
    assert seen.failure is not None
    assert seen.failure.kind == "hung"


def test_a_program_that_makes_no_step_in_time_is_waited_for_longer(
    short: None, tmp_path: Path
) -> None:
    """It loads what it needs, say."""
    program = TRAINING + "time.sleep(6)\ntrain(jnp.ones((99, 99)), 600)"
    seen, said = watched(tmp_path, program, limit_s=6.0, longest_s=60.0)
    assert sum("waiting longer" in text for text in said) == 1
    assert seen.failure is None
    assert seen.digest is not None and seen.digest.steps is not None


@pytest.mark.parametrize(
    ("left", "waits"),
    [((), True), ((RECORDING,), True), ((RECORDING, OPENED.format(1)), False)],
    ids=["no step", "no window", "a window"],
)
def test_more_time_is_given_once_where_no_window_was_opened(
    left: tuple[str, ...], waits: bool, tmp_path: Path
) -> None:
    for name in left:
        (tmp_path / name).touch()
    said: list[str] = []
    child = cast(Any, SimpleNamespace(poll=lambda: None))
    following = Following(child, tmp_path, ProcessGroups(), Within(1.0, 2.0), said.append)
    assert following._waits_longer() == waits
    assert not following._waits_longer()
    assert len(said) == waits


def test_a_program_that_will_not_stop_is_ended(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LEAVE_S", 0.5)
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    seen, _ = watched(tmp_path, TRAINING + deaf + "train(jnp.ones((99, 99)), 600)")
    assert seen.failure is None
    assert seen.digest is not None and seen.digest.steps is not None


EAGER = """
import jax, jax.numpy as jnp
params, x = [jnp.full((16, 16), 0.01) for _ in range(100)], jnp.ones((8, 16))

def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w) + x
    return x.mean()

while True:
    params = [p - 0.1 * g for p, g in zip(params, jax.grad(loss)(params, x))]
"""


def test_a_step_of_a_thousand_operations_is_understood_although_the_time_is_up(
    tmp_path: Path,
) -> None:
    begin = time.monotonic()
    seen, _ = watched(tmp_path, EAGER, limit_s=12.0)
    assert time.monotonic() - begin < 12.0 + 10.0
    if seen.digest is not None and seen.digest.steps is not None:
        assert seen.failure is None
    else:
        assert seen.failure is not None


DONATING = """
import jax, jax.numpy as jnp
step = jax.jit(lambda p, x: (p @ x).sum(), donate_argnums=0)
for size in (3, 3, 4):
    step(jnp.ones((size, 4)), jnp.ones(4)).block_until_ready()
print("no warning")
"""


def test_a_warning_of_the_installed_jax_becomes_a_message(tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, DONATING)
    assert seen.failure is None
    assert seen.recording is not None
    messages = seen.recording.messages
    assert len(messages) == 2
    for message, shape in zip(messages, ("3,4", "4,4"), strict=True):
        assert message.startswith("Some donated buffers were not usable: ")
        assert shape in message


def test_steps_are_timed_in_turn_with_something_else_once_a_window_is_recorded(
    short: None, tmp_path: Path
) -> None:
    (tmp_path / "patient.py").write_text(TRAINING + "train(jnp.ones((99, 99)), 600)")
    launch = Launch(command=("patient.py",), env=dict(os.environ), folder=tmp_path)
    told, said = list[float | None](), list[str]()

    def in_turn(running: Running) -> None:
        assert any("of steps" in text for text in said)
        assert not any("reading" in text for text in said)
        for _ in range(2):
            with running.at_rest():
                assert (tmp_path / "patient.py").exists()
            told.append(running.step_ms())

    with ProcessGroups() as groups:
        seen = watch(launch, groups, Within.at_most(60.0), said.append, groups.folder(), in_turn)
    assert seen.recording is not None and seen.recording.step_calls is not None
    assert seen.failure is None
    assert len(told) == 2
    assert all(each is not None and 0 < each < 1000 for each in told)


def test_the_time_in_which_a_run_was_kept_at_rest_is_not_its_own(
    short: None, tmp_path: Path
) -> None:
    ending = "while not Path('over').exists():\n    train(jnp.ones((99, 99)), 0.1)"
    (tmp_path / "patient.py").write_text(TRAINING + ending)
    launch = Launch(command=("patient.py",), env=dict(os.environ), folder=tmp_path)
    rested_s = list[float]()

    def in_turn(running: Running) -> None:
        with running.at_rest():
            time.sleep(0.5)
        (tmp_path / "over").touch()
        rested_s.append(running.rested_s)

    with ProcessGroups() as groups:
        within = Within.at_most(60.0)
        seen = watch(launch, groups, within, lambda text: None, groups.folder(), in_turn)
    assert rested_s[0] >= 0.5
    assert seen.ended is not None and seen.ended_s is not None
    in_all_s = float(seen.ended.split(" after ")[1].split()[0])
    assert seen.ended_s == pytest.approx(in_all_s - rested_s[0], abs=0.1)


def test_traced_steps_are_kept_rather_than_what_a_later_window_without_any_tells() -> None:
    known = recorded("healthy").steps
    assert known is not None
    none = Digest(compiles=(), garbage=None, steps=None, program=None, executable=None)
    traced = replace(none, steps=known)
    by_calls = replace(none, steps=replace(known, is_traced=False))
    assert tells_more(traced, traced) and tells_more(traced, by_calls)
    assert tells_more(by_calls, none) and tells_more(by_calls, by_calls)
    assert not tells_more(by_calls, traced) and not tells_more(none, none)
    assert not tells_more(None, traced)
