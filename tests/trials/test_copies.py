"""Two live copies of a script."""

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from perfdoctor.processes import Ward
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials import copies
from perfdoctor.trials.copies import (
    QUIET_S,
    Copy,
    Ran,
    Start,
    log_ratios,
    play_copies,
    steps_of_a_slice,
    warm_up,
    warm_up_by_turns,
)
from perfdoctor.trials.duet import FEWEST_ROUNDS
from perfdoctor.trials.live import PlayerEnded
from tests.awaited import await_status

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


def ran(*slices: Ran) -> Copy:
    """A copy that ran so."""
    return cast(Copy, SimpleNamespace(slices=list(slices)))


START = Ran(0, 100, 1), Ran(0, 100, 2)


def test_the_ratio_is_that_of_the_rates_without_the_start() -> None:
    slow = ran(*START, Ran(100, 200, 5), Ran(300, 500, 10))
    fast = ran(*START, Ran(100, 150, 10), Ran(300, 400, 20))
    assert log_ratios(slow, fast) == pytest.approx([math.log(4)] * 2)


def test_a_slice_without_progress_has_no_ratio() -> None:
    moving = ran(*START, Ran(100, 200, 5), Ran(200, 300, 5))
    stuck = ran(*START, Ran(100, 200, 0), Ran(200, 300, 5))
    assert log_ratios(moving, stuck) == [0.0]


def started(*notes: tuple[float, int, int]) -> Start:
    """After what was noted: how long it ran, its steps, its compilations."""
    start = Start()
    for ran_s, calls, compiles in notes:
        start.note(calls, compiles, ran_s)
    return start


def test_a_copy_is_warm_when_it_makes_steps_and_compiles_nothing() -> None:
    late = 2 + 2 * QUIET_S
    assert started((1, 1, 5), (2, 2, 5), (late, 50, 5)).is_quiet
    assert not started((1, 1, 5), (2, 2, 5), (late, 50, 6)).is_quiet
    assert not started((1, 1, 5), (late, 2, 5)).is_quiet  # too few steps
    assert not started((1, 0, 5), (60, 0, 5)).is_over  # it makes none


def test_a_copy_that_never_ceases_to_compile_is_over_its_start_at_last() -> None:
    notes = [(1.0 + second, 10 * second, second) for second in range(1, 60)]
    assert not started(*notes[:3]).is_over
    endless = started(*notes)
    assert endless.is_over and not endless.is_quiet


@dataclass
class Place:
    """A folder for a script, and how it is launched."""

    folder: Path

    def launch(self, program: str, **env: str) -> Launch:
        file = self.folder / "train.py"
        file.write_text(program)
        return Launch(command=(str(file),), env={**os.environ, **env}, folder=self.folder)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """After which nothing of the test lives."""
    yield Place(tmp_path)
    left = [each.cmdline() for each in psutil.Process().children(recursive=True)]
    assert not any(str(tmp_path) in " ".join(command) for command in left)


def soon() -> float:
    return time.monotonic() + LIMIT_S


def until_it_ends(place: Place, program: str, change: Change | None = None) -> str:
    """Why a copy ended."""
    with (
        Ward() as ward,
        Copy(ward, place.launch(program), change or Change(), "step", soon()) as copy,
        pytest.raises(PlayerEnded) as raised,
    ):
        until = soon()
        while time.monotonic() < until:
            copy.check()
            time.sleep(0.02)
    return str(raised.value)


def test_a_script_that_ends_early_says_how_far_it_came(place: Place) -> None:
    program = TRAINING + "train(jnp.ones((2, 2)), 7)"
    assert until_it_ends(place, program) == "the script ended after 7 steps; give it more"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise ValueError('no such file')", "ValueError: no such file"),
        ("sys.exit('FileNotFoundError: gone')", "FileNotFoundError: gone"),
        ("os._exit(7)", "begins"),
        ("os.kill(os.getpid(), 9)", "killed, as the kernel does when memory runs out"),
        ("raise MemoryError('80 GiB')", "out of memory: MemoryError: 80 GiB"),
    ],
)
def test_a_script_that_fails_says_why(place: Place, end: str, said: str) -> None:
    program = f"import os, sys\nprint('begins', flush=True)\n{end}\n"
    assert until_it_ends(place, program) == said


def test_a_script_that_fails_without_a_word_tells_its_status(place: Place) -> None:
    assert until_it_ends(place, "import os\nos._exit(7)") == "ended with status 7"


def test_a_copy_runs_only_while_it_is_let(place: Place) -> None:
    with Ward() as ward, Copy(ward, place.launch(FOR_EVER), Change(), "step", soon()) as copy:
        until = soon()
        while copy.tally.calls < 3 and time.monotonic() < until:
            time.sleep(0.02)
        copy.suspend()
        copy.suspend()
        before = copy.tally.calls
        time.sleep(0.3)
        assert copy.tally.calls == before
        copy.run_for(0.5)
        assert copy.tally.calls > before
        assert len(copy.slices) == 2
        assert all(each.begin_ns < each.end_ns for each in copy.slices)
        assert sum(each.steps for each in copy.slices) == copy.tally.calls


@pytest.mark.parametrize("stride", [1, 3])
def test_a_copy_makes_as_many_steps_as_it_is_told(place: Place, stride: int) -> None:
    with (
        Ward() as ward,
        Copy(ward, place.launch(FOR_EVER), Change(), "step", soon(), stride) as copy,
    ):
        warm_up([copy], soon())
        copy.run_for(0.05)
        before = copy.tally.calls
        for steps in (7, 1, 2):
            copy.run(steps)
        assert copy.tally.calls - before == 10 * stride
        assert [each.steps for each in copy.slices[2:]] == [7, 1, 2]


def test_copies_that_start_by_turns_never_run_at_the_same_time(place: Place) -> None:
    launch = place.launch(FOR_EVER)
    with (
        Ward() as ward,
        Copy(ward, launch, Change(), "step", soon()) as one,
        Copy(ward, launch, Change(), "step", soon()) as other,
    ):
        before_s = 0.0
        for copy in (one, other):
            copy.pause()
            before_s += copy.ran_s(time.monotonic_ns())
        began = time.monotonic_ns()
        warm_up_by_turns((one, other), soon())
        seconds = (time.monotonic_ns() - began) / 1e9
        assert one.tells_steps and other.tells_steps
        for copy in (one, other):
            await_status(copy.process, psutil.STATUS_STOPPED)
            assert 0 < copy.compiling_s < copy.ran_s(copy.tally.since(0)[-1])
        together_s = sum(copy.ran_s(copy.slices[0].end_ns) for copy in (one, other)) - before_s
        assert 0 < together_s < seconds


def test_slices_take_about_equally_long() -> None:
    quick, slow = Speed(0.01), Speed(0.1)
    assert steps_of_a_slice((quick, slow), 0.5) == {quick: 8 * 10, slow: 8}
    assert steps_of_a_slice((quick,), 0.5) == {quick: 50}
    assert steps_of_a_slice((Speed(9.0),), 0.5).popitem()[1] == 2  # not longer than the longest
    endless = Speed(0.1, compiles_for_ever=True)
    assert steps_of_a_slice((quick, endless), 0.5) == {quick: 300, endless: 30}
    with pytest.raises(PlayerEnded, match="no step in 1 s"):
        steps_of_a_slice((Speed(math.inf),), 1.0)


class Speed(Copy):
    """A copy whose steps take so long."""

    def __init__(self, step_s: float, *, compiles_for_ever: bool = False) -> None:
        self.step_s, self.compiles_for_ever = step_s, compiles_for_ever
        self.slices = []

    def run_for(self, seconds: float) -> None:
        steps = 0 if math.isinf(self.step_s) else max(1, round(seconds / self.step_s))
        end_s = steps * self.step_s if steps else seconds
        self.slices.append(Ran(0, round(end_s * 1e9), steps))


def test_a_copy_that_makes_no_step_for_long_is_suspended_where_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "REST_LIMIT_S", 0.3)
    program = TRAINING + "import time\ntrain(jnp.ones((2, 2)), 5)\ntime.sleep(10**6)"
    with Ward() as ward, Copy(ward, place.launch(program), Change(), "step", soon()) as copy:
        until = soon()
        while copy.tally.calls < 5 and time.monotonic() < until:
            time.sleep(0.02)
        copy.suspend()
        copy.run_for(0.1)
        await_status(copy.process, psutil.STATUS_STOPPED)
        assert copy.slices[-1].steps == 0 and copy.slices[-1].seconds > 0.3


LEAVING = """
import signal

def leave(number, frame):
    step(jnp.ones((2, 2))).block_until_ready()
    open("checkpoint", "w").close()
    sys.exit(1)

signal.signal(signal.SIGTERM, leave)
"""


def test_a_copy_that_rests_may_still_call_its_step_on_leaving(place: Place) -> None:
    program = FOR_EVER.replace("def train", LEAVING + "\ndef train")
    with Ward() as ward, Copy(ward, place.launch(program), Change(), "step", soon()) as copy:
        warm_up([copy], soon())
    assert (place.folder / "checkpoint").exists()


def test_a_copy_that_is_left_is_ended_and_its_folder_gone(place: Place) -> None:
    with Ward() as ward:
        with Copy(ward, place.launch(FOR_EVER), Change(), "step", soon()) as copy:
            copy.suspend()
        assert (ward._children, ward._folders) == ([], [])


def test_more_work_in_a_step_is_seen_as_slower(place: Place) -> None:
    with Ward() as ward:
        little, much = place.launch(FOR_EVER), place.launch(FOR_EVER, WORK="3")
        ratios = play_copies(ward, little, much, Change(env={"WORK": "3"}), "step", soon())
        assert len(ratios) >= FEWEST_ROUNDS
        assert sum(ratios) < 0
        assert (ward._children, ward._folders) == ([], [])


PRECISE = FOR_EVER.replace("step(x):", "step(x):\n    x = x.astype(jnp.float64)").replace(
    "import os, sys", "import os, sys\nimport jax\njax.config.update('jax_enable_x64', True)"
)


def test_a_setting_is_imposed_on_the_changed_copy_only(place: Place) -> None:
    change = Change(settings={"jax_enable_x64": False})
    slow = PRECISE.replace('"1"))', '"4"))')
    with Ward() as ward:
        start = place.launch(slow)
        assert sum(play_copies(ward, start, start, change, "step", soon())) > 0


def test_where_the_step_is_not_told_all_jitted_calls_together_are_compared(place: Place) -> None:
    with Ward() as ward:
        little, much = place.launch(FOR_EVER), place.launch(FOR_EVER, WORK="3")
        assert sum(play_copies(ward, much, little, Change(), "convolve", soon())) > 0


COMPILES_FOR_EVER = FOR_EVER.replace("x = step(x)\n", "x = jax.jit(lambda x: x + 1)(step(x))\n")


def test_a_script_that_compiles_in_each_step_is_compared_all_the_same(place: Place) -> None:
    with Ward() as ward:
        start = place.launch(COMPILES_FOR_EVER)
        assert len(play_copies(ward, start, start, Change(), "step", soon())) >= FEWEST_ROUNDS


def test_a_script_that_jits_nothing_ends_the_trial(place: Place) -> None:
    start = place.launch(FOR_EVER.replace("@jax.jit", ""))
    with Ward() as ward, pytest.raises(PlayerEnded, match="budget"):
        play_copies(ward, start, start, Change(), "step", time.monotonic() + 6)


def test_a_change_that_breaks_the_script_ends_the_trial(place: Place) -> None:
    broken = place.launch(FOR_EVER, WORK="much")
    with Ward() as ward, pytest.raises(PlayerEnded, match="invalid literal"):
        play_copies(ward, place.launch(FOR_EVER), broken, Change(), "step", soon())
