"""Programs that still run, and are timed in turn with something else."""

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from perfdoctor.observe import in_turn
from perfdoctor.observe.in_turn import LONGEST_STEP_MS, Running, takes_turns
from perfdoctor.protocol import TIMED, TURN
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.recording import Recording
from tests.awaited import await_status
from tests.calls import call_of

ANSWERING = """
import sys, time
from pathlib import Path
folder, number = Path(sys.argv[1]), 0
while number < 2:
    if (folder / f"turn-{number + 1}").exists():
        number += 1
        (folder / "part").write_text(("7.5", "")[number - 1])
        (folder / "part").rename(folder / f"timed-{number}")
    time.sleep(0.01)
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[psutil.Popen]:
    with psutil.Popen([sys.executable, "-c", ANSWERING, str(tmp_path)]) as child:
        yield child
        if child.poll() is None:
            child.kill()


def test_the_program_is_asked_turn_by_turn(child: psutil.Popen, tmp_path: Path) -> None:
    running = Running(child, tmp_path, time.monotonic() + 60)
    assert running.step_ms() == 7.5
    assert running.step_ms() is None  # it made no steps
    assert running.step_ms() is None  # it has ended
    assert {each.name for each in tmp_path.iterdir()} >= {TURN.format(1), TIMED.format(2)}


def test_it_is_known_how_long_it_was_at_rest(tmp_path: Path) -> None:
    with psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as silent:
        running = Running(silent, tmp_path, math.inf)
        assert running.rested_s == 0
        began = time.monotonic()
        for _ in range(2):
            before_s = running.rested_s
            with running.at_rest():
                await_status(silent, psutil.STATUS_STOPPED)
            assert running.rested_s > before_s
        assert running.rested_s <= time.monotonic() - began
        silent.kill()


def test_nobody_is_waited_for_longer_than_there_is_time(tmp_path: Path) -> None:
    with psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as silent:
        assert Running(silent, tmp_path, time.monotonic()).step_ms() is None
        silent.kill()


def test_an_answer_that_comes_too_late_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_turn, "ANSWER_S", 0.0)
    with psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as silent:
        assert Running(silent, tmp_path, math.inf).step_ms() is None
        assert silent.poll() is None
        silent.kill()


def test_a_program_at_rest_is_suspended_and_goes_on(child: psutil.Popen, tmp_path: Path) -> None:
    running = Running(child, tmp_path, time.monotonic() + 60)
    with pytest.raises(ZeroDivisionError), running.at_rest():
        await_status(child, psutil.STATUS_STOPPED)
        1 / 0  # noqa: B018  # what happens meanwhile leaves no program suspended
    assert running.step_ms() == 7.5


def recorded(**calls: object) -> Recording:
    call = call_of(before_ms=0.1, before_cpu_ms=0.1, inside_ms=9.0, inside_cpu_ms=9.0)
    told = replace(StepCalls(calls=(call,), time_ms=10.0, steps=50), **calls)
    return Recording(
        start_ns=0, step_calls=told, platform="cpu", rss_bytes=10**9, available_bytes=2 * 10**9
    )


def test_a_usual_step_takes_turns() -> None:
    assert takes_turns(recorded())


@pytest.mark.parametrize(
    "recording",
    [
        None,
        Recording(start_ns=0),
        recorded(threads=2),
        recorded(is_asked=True),
        recorded(compilations=0.1),
        recorded(time_ms=LONGEST_STEP_MS + 1),
        replace(recorded(), platform="cuda"),
        replace(recorded(), available_bytes=10**8),
        replace(recorded(), capture_failure="it calls back"),
    ],
)
def test_others_do_not(recording: Recording | None) -> None:
    assert not takes_turns(recording)
