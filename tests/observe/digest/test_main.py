from dataclasses import replace as replace_of
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from msgspec.structs import replace

from perfdoctor.observe.digest import __main__ as digest_main
from perfdoctor.observe.digest.__main__ import (
    ENOUGH_S,
    ENOUGH_STEPS,
    LONGER,
    LONGEST_S,
    WAIT_LONGER,
    is_known,
    next_window_s,
    picture_of,
    unread,
    with_convolutions,
)
from perfdoctor.observe.digest.compiles import LAST_PHASE
from perfdoctor.observe.digest.intervals import NOTHING, union
from perfdoctor.observe.digest.layers import TOO_MANY
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.protocol import RECORDING
from perfdoctor.schema.calls import Eager, StepCalls
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.recording import CompileEvent, Recording, Window
from perfdoctor.schema.steps import Steps
from tests.calls import call_of
from tests.observe.digest.test_executable import CONVOLVING, record
from tests.recorded import recorded

SEEN = Timeline(dispatches={"step": union([(0, 1)])}, waits=NOTHING, busy=NOTHING)
IDLE = Timeline(dispatches={}, waits=NOTHING, busy=NOTHING)


def window(seconds: float, *, compiles: bool = False, never_rests: bool = False) -> Recording:
    """Of so many seconds; in its middle something may be compiled."""
    end_ns = round(seconds * 1e9)
    found = Recording(
        start_ns=0, window=Window(start_ns=0, end_ns=end_ns, cpu_s=seconds, steady=not compiles)
    )
    if compiles:
        found.compiles = [
            CompileEvent(phase=LAST_PHASE, function="step", seconds=0.1, end_ns=end_ns // 2)
        ]
    found.never_rests = never_rests
    return found


def steps(count: int) -> Steps:
    """So many of them."""
    known = recorded("healthy").steps
    assert known is not None
    return replace(known, count=count)


def test_enough_steps_are_enough() -> None:
    assert next_window_s(SEEN, steps(ENOUGH_STEPS), window(3.0)) is None


def test_too_few_steps_ask_for_a_window_that_holds_enough() -> None:
    asked_s = next_window_s(SEEN, steps(ENOUGH_STEPS // 2), window(3.0))
    assert asked_s == pytest.approx(3.0 * 2 * 1.5)
    assert next_window_s(SEEN, steps(5), window(15.0)) == ENOUGH_S
    assert next_window_s(SEEN, steps(5), window(ENOUGH_S)) is None


def probed(function: str, threads: int = 1) -> Recording:
    """A window before which the calls of a function were timed."""
    call = call_of(function=function, before_ms=0, before_cpu_ms=0, inside_ms=0, inside_cpu_ms=0)
    found = window(3.0)
    found.step_calls = StepCalls(calls=(call,), time_ms=500.0, steps=12, threads=threads)
    return found


def test_of_steps_that_were_timed_before_a_few_are_enough() -> None:
    few = steps(5)
    assert next_window_s(SEEN, few, probed(few.function)) is None
    assert is_known(few, probed(few.function))
    for recording in (probed("evaluate"), probed(few.function, threads=2), window(3.0)):
        assert next_window_s(SEEN, few, recording) is not None
        assert not is_known(few, recording)
    assert not is_known(None, probed("step"))


@pytest.mark.parametrize(
    ("ends_s", "compiling_ms", "looks_again"),
    [
        ((-12.0, -5.0), 400.0, True),
        ((-14.0, -8.0, -3.0), 400.0, True),
        ((-12.0, -5.0), 100.0, False),  # little of the time
        ((-9.0, -7.0), 400.0, False),  # it would have come again
        ((-5.0,), 400.0, False),
        ((-9.0, -7.0, -5.0, -3.0), 400.0, False),  # so often that it is known
    ],
)
def test_what_may_be_compiled_again_is_waited_for(
    ends_s: tuple[float, ...], compiling_ms: float, looks_again: bool
) -> None:
    """A window of 3 s, and when the step was compiled, from its begin on."""
    enough = steps(ENOUGH_STEPS)
    recording = probed(enough.function)
    assert recording.step_calls is not None
    recording.step_calls = replace(recording.step_calls, compiling_ms=compiling_ms)
    recording.compiles = [
        CompileEvent(
            phase=LAST_PHASE, function=enough.function, seconds=2.0, end_ns=round(each * 1e9)
        )
        for each in ends_s
    ]
    assert next_window_s(SEEN, enough, recording) == (3.0 if looks_again else None)


def test_steps_of_seconds_are_waited_for() -> None:
    assert next_window_s(IDLE, None, window(3.0)) == WAIT_LONGER * 3.0
    assert next_window_s(SEEN, None, window(3.0)) == LONGER * 3.0
    assert next_window_s(SEEN, None, window(ENOUGH_S)) == LONGEST_S


def test_a_window_that_was_ended_for_its_many_events_is_followed_by_one_that_costs_less() -> None:
    assert next_window_s(SEEN, None, window(0.9)) == WAIT_LONGER * 0.9


def test_a_window_in_a_set_up_is_repeated() -> None:
    assert next_window_s(SEEN, steps(100), window(3.0, compiles=True)) == 3.0


def test_a_function_that_dispatches_operations_is_looked_at_twice() -> None:
    eager = Eager(function="step", file="train.py", line=1, call_ms=50.0, share=0.9)
    for looks, share, wanted_s in ((1, 0.9, 3.0), (2, 0.9, None), (2, 0.2, 3.0)):
        found = window(3.0, compiles=True)
        found.eager, found.eager_looks = replace(eager, share=share), looks
        assert next_window_s(SEEN, None, found) == wanted_s


def test_a_program_that_compiles_for_ever_is_not_looked_at_again() -> None:
    for_ever = window(6.0, compiles=True, never_rests=True)
    assert next_window_s(SEEN, steps(8), for_ever) is None
    assert next_window_s(SEEN, None, for_ever) == LONGER * 6.0


COMPUTING = replace_of(IDLE, busy=union([(0, 1)]))
"""A window for which the program has called ahead: nothing is called in it."""


def told(folder: Path, recording: Recording, seen: Timeline | None) -> Digest:
    """What is made of a recording, and of the timeline of its window."""
    (folder / RECORDING).write_bytes(msgspec.json.encode(recording))
    with patch.object(digest_main, "seen_in", return_value=seen):
        return digest_main.digest(folder)


def test_where_the_window_holds_no_steps_those_that_were_timed_before_are_told(
    tmp_path: Path,
) -> None:
    found = told(tmp_path, probed("train_step"), COMPUTING)
    assert found.steps is not None and not found.steps.is_traced
    assert (found.steps.function, found.steps.time_ms) == ("train_step", 500.0)
    assert found.steps.why_untraced == "no jitted function was called in the traced window"
    assert found.next_window_s and not found.is_step_known
    assert "steps" not in found.not_measured and "executable" in found.not_measured


@pytest.mark.parametrize("end_s", [1.5, 4.0])
def test_where_something_compiles_in_the_window_what_was_timed_before_is_not_enough(
    tmp_path: Path, end_s: float
) -> None:
    compiling = probed("train_step")
    compiling.compiles = [
        CompileEvent(
            phase=LAST_PHASE, function="train_step", seconds=2.0, end_ns=round(end_s * 1e9)
        )
    ]
    for recording, seen in (
        (compiling, COMPUTING),
        (probed("train_step"), IDLE),
        (probed("train_step"), None),
        (window(3.0), COMPUTING),
    ):
        none = told(tmp_path, recording, seen)
        assert none.steps is None and "steps" in none.not_measured


def test_convolutions_take_their_part_of_the_devices_time(tmp_path: Path) -> None:
    (tmp_path / "executables").mkdir()
    (tmp_path / "executables" / "0.txt").write_text(CONVOLVING)
    taken_ms = {"jit_step": {"ynn_fusion.11": 3.0, "sum_fusion": 8.0}, "jit_other": {"add": 1.0}}
    seen = replace_of(SEEN, operation_ms=taken_ms)
    known = replace(steps(20), function="step", device_busy_ms=8.0)
    assert with_convolutions(tmp_path, known, [record()], seen).convolution_ms == 2.0
    assert with_convolutions(tmp_path, known, [record()], SEEN).convolution_ms is None
    assert with_convolutions(tmp_path, known, [record()], None).convolution_ms is None
    assert with_convolutions(tmp_path, known, [], seen).convolution_ms is None


def test_a_program_that_was_not_read_to_its_end_is_told_of() -> None:
    whole = recorded("healthy").program
    assert whole is not None
    assert unread(whole) == unread(None) == {}
    assert unread(replace(whole, is_whole=False)) == {"layers": TOO_MANY}
    assert "200,000 operations" in TOO_MANY


def test_a_picture_that_can_not_be_made_costs_nothing_else() -> None:
    missing: dict[str, str] = {}
    told = Recording(start_ns=0)
    assert picture_of(None, steps(5), told, missing) is None
    assert picture_of(SEEN, None, told, missing) is None
    assert missing == {}
    with patch.object(digest_main, "excerpt_of", side_effect=KeyError("step")):
        assert picture_of(SEEN, steps(5), told, missing) is None
    assert missing == {"timeline": "there is no picture of the steps: KeyError('step')"}
