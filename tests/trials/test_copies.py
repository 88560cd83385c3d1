"""Two live copies of a script."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.processes import Ward
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.copies import QUIET_S, Copy, Start, log_ratios, play_copies, progress, step_s
from perfdoctor.trials.duet import FEWEST_ROUNDS
from perfdoctor.trials.live import PlayerEnded

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


def one_slice(calls: Sequence[int]) -> list[float]:
    return progress([(0, 100)], calls)


def test_steps_that_begin_with_the_slice() -> None:
    assert one_slice([0, 25, 50, 75]) == [4.0]


def test_a_part_of_a_step_counts_as_such() -> None:
    assert progress([(0, 60), (60, 100)], [0, 40, 80]) == pytest.approx([1.5, 1.0])


def test_time_before_the_first_step_makes_no_progress() -> None:
    assert progress([(0, 50), (50, 100)], [60, 80]) == [0.0, 2.0]


@pytest.mark.parametrize("calls", [[], [50]])
def test_too_few_steps_tell_nothing(calls: list[int]) -> None:
    assert progress([(0, 50), (50, 100)], calls) == [0.0, 0.0]


def test_a_step_that_is_interrupted_is_shared_by_the_slices() -> None:
    slices = [(0, 10), (1000, 1030), (5000, 5010)]
    assert progress(slices, [0, 5005]) == pytest.approx([10 / 45, 30 / 45, 5 / 45 + 5 / 45])


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int], list[tuple[int, int]]]:
    """Slices with pauses between them, calls while it ran, and the same without the pauses."""
    lengths = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
    pauses = draw(st.lists(st.integers(0, 10_000), min_size=len(lengths), max_size=len(lengths)))
    ends = list(accumulate(lengths, initial=0))
    paused = list(accumulate(pauses))
    slices = [(a + p, b + p) for (a, b), p in zip(pairwise(ends), paused, strict=True)]
    instants = draw(st.lists(st.integers(0, ends[-1] - 1), unique=True, max_size=30))
    where = [next(n for n, end in enumerate(ends[1:]) if ran < end) for ran in sorted(instants)]
    calls = [ran + paused[n] for ran, n in zip(sorted(instants), where, strict=True)]
    return slices, calls, list(pairwise(ends))


@given(runs())
def test_suspended_time_does_not_count(
    run: tuple[list[tuple[int, int]], list[int], list[tuple[int, int]]],
) -> None:
    slices, calls, unpaused = run
    at_once = [
        call - next(a - b for (a, end), (b, _) in zip(slices, unpaused, strict=True) if call < end)
        for call in calls
    ]
    assert progress(slices, calls) == pytest.approx(progress(unpaused, at_once))


@given(runs())
def test_the_slices_together_hold_all_steps(
    run: tuple[list[tuple[int, int]], list[int], list[tuple[int, int]]],
) -> None:
    slices, calls, _ = run
    made = progress(slices, calls)
    assert len(made) == len(slices)
    assert min(made) >= -1e-9
    if len(calls) > 1:
        assert len(calls) - 1 - 1e-9 <= sum(made) <= len(calls) + 1e-9


@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 40))
def test_even_steps_make_even_progress(step: int, length: int, count: int) -> None:
    calls = list(range(0, length * count, step))
    slices = [(length * n, length * (n + 1)) for n in range(count)]
    if len(calls) > 1:
        until = calls[-1] + step
        for steps, (begin, end) in zip(progress(slices, calls), slices, strict=True):
            assert steps == pytest.approx(max(0, min(end, until) - min(begin, until)) / step)


def ran(slices: list[tuple[int, int]], calls: list[int]) -> Copy:
    """A copy that ran so."""
    tally = SimpleNamespace(calls=len(calls), since=lambda call: calls[max(0, call) :])
    copy = SimpleNamespace(slices=slices, tally=tally)
    copy.steps_in_slices = lambda: progress(slices, calls)
    return cast(Copy, copy)


def test_the_ratio_is_that_of_the_rates_without_the_start() -> None:
    slices = [(0, 100), (100, 200), (300, 500)]
    slow, fast = ran(slices, list(range(0, 500, 20))), ran(slices, list(range(0, 500, 5)))
    found = log_ratios(slow, fast)
    assert len(found) == 2
    assert found == pytest.approx([1.386294] * 2, abs=0.1)


def test_a_slice_without_progress_has_no_ratio() -> None:
    slices = [(0, 100), (100, 200), (200, 300)]
    moving, stuck = ran(slices, list(range(0, 300, 20))), ran(slices, [0, 10, 20, 30])
    assert log_ratios(moving, stuck) == []


def test_the_length_of_a_step_is_that_of_most() -> None:
    assert step_s(ran([], [0, 10**9, 2 * 10**9, 9 * 10**9])) == 1.0
    assert step_s(ran([], [5])) == step_s(ran([], [])) == 0.0


def started(monkeypatch: pytest.MonkeyPatch, *notes: tuple[float, int, int]) -> Start:
    """After what was noted: the instant, its steps, its compilations."""
    instants = iter([0.0, *(instant for instant, _, _ in notes)])
    monkeypatch.setattr(time, "monotonic", lambda: next(instants))
    start = Start()
    for _, calls, compiles in notes:
        start.note(calls, compiles)
    return start


def test_a_copy_is_warm_when_it_makes_steps_and_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = 2 + 2 * QUIET_S
    assert started(monkeypatch, (1, 1, 5), (2, 2, 5), (late, 50, 5)).is_quiet
    assert not started(monkeypatch, (1, 1, 5), (2, 2, 5), (late, 50, 6)).is_quiet
    assert not started(monkeypatch, (1, 1, 5), (late, 2, 5)).is_quiet  # too few steps
    assert not started(monkeypatch, (1, 0, 5), (60, 0, 5)).is_over  # it makes none


def test_a_copy_that_never_ceases_to_compile_is_over_its_start_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = [(1.0 + second, 10 * second, second) for second in range(1, 60)]
    assert not started(monkeypatch, *notes[:3]).is_over
    endless = started(monkeypatch, *notes)
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
        Copy(ward, place.launch(program), change or Change(), "step") as copy,
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
    with Ward() as ward, Copy(ward, place.launch(FOR_EVER), Change(), "step") as copy:
        until = soon()
        while copy.tally.calls < 3 and time.monotonic() < until:
            time.sleep(0.02)
        copy.suspend()
        copy.suspend()
        before = copy.tally.calls
        time.sleep(0.3)
        assert copy.tally.calls == before
        copy.run(0.5)
        assert copy.tally.calls > before
        assert len(copy.slices) == 2
        assert all(begin < end for begin, end in copy.slices)
        assert sum(copy.steps_in_slices()) > 2


def test_a_copy_that_is_left_is_ended_and_its_folder_gone(place: Place) -> None:
    with Ward() as ward:
        with Copy(ward, place.launch(FOR_EVER), Change(), "step") as copy:
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
