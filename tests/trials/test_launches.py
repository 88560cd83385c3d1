import os
import time
from pathlib import Path

import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.launches import ROUNDS, play_launches, run_s
from perfdoctor.trials.live import WorkerEnded

LIMIT_S = 60.0
"""Generous: reached only where something is wrong."""

PATIENT = """
import os, subprocess, sys, time
from pathlib import Path

def note():
    with (Path(__file__).parent / "runs").open("a") as runs:
        runs.write(sys.argv[1] + "\\n")

def rest():
    pass

def cache():
    kept = Path(__file__).parent / "kept"
    if not kept.exists():
        time.sleep(float(sys.argv[2]))
        kept.touch()

def sleep():
    time.sleep(float(sys.argv[2]))

def fail():
    print("a warning that came before", file=sys.stderr)
    sys.exit("RuntimeError: the disk is gone")

def fail_silently():
    os._exit(7)

def be_killed():
    os.kill(os.getpid(), 9)

def exhaust():
    print("XlaRuntimeError: RESOURCE_EXHAUSTED: 80 GiB", file=sys.stderr)
    sys.exit("see the log")

def breed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (Path(__file__).parent / "pid").write_text(str(child.pid))
    time.sleep(600)

def talk():
    print("x" * 10**6)
    sys.stdin.read()

note()
globals()[sys.argv[1]]()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which Python finds the patient, and in which it notes its runs."""
    (tmp_path / "patient.py").write_text(PATIENT)
    return tmp_path


def launch(folder: Path, *arguments: str) -> Launch:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return Launch(command=("-m", "patient", *arguments), env=env)


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().split()


def soon() -> float:
    return time.monotonic() + LIMIT_S


def gone(pid: int) -> bool:
    """Whether a process ends, at most as a zombie that nobody collects."""
    until = soon()
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def why_it_ended(folder: Path, what: str) -> str:
    """What is said of a run that fails."""
    with ProcessGroups() as groups, pytest.raises(WorkerEnded) as raised:
        run_s(groups, launch(folder, what), soon())
    return str(raised.value)


def test_a_run_takes_as_long_as_it_runs(folder: Path) -> None:
    with ProcessGroups() as groups:
        before = time.monotonic()
        took = run_s(groups, launch(folder, "sleep", "0.3"), soon())
        assert 0.3 <= took <= time.monotonic() - before


def test_a_run_may_write_much_and_has_nothing_to_read(folder: Path) -> None:
    with ProcessGroups() as groups:
        assert run_s(groups, launch(folder, "talk"), soon()) > 0


def test_a_run_that_fails_is_reported_with_its_last_line(folder: Path) -> None:
    assert why_it_ended(folder, "fail") == "RuntimeError: the disk is gone"


def test_a_run_that_fails_without_a_word_is_reported_with_its_status(folder: Path) -> None:
    assert why_it_ended(folder, "fail_silently") == "ended with status 7"


def test_a_run_that_is_killed_is_reported(folder: Path) -> None:
    assert why_it_ended(folder, "be_killed") == "ended with status -9"


def test_exhausted_memory_is_found_above_the_last_line(folder: Path) -> None:
    assert "RESOURCE_EXHAUSTED: 80 GiB" in why_it_ended(folder, "exhaust")


def test_a_run_that_does_not_end_in_time_is_given_up(folder: Path) -> None:
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match="the budget ended"):
        run_s(groups, launch(folder, "sleep", "600"), time.monotonic() + 0.2)


def test_a_run_that_should_have_ended_before_it_began_is_given_up(folder: Path) -> None:
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match="the budget ended"):
        run_s(groups, launch(folder, "sleep", "600"), time.monotonic() - 5)


@pytest.mark.parametrize("what", ["fail", "sleep", "breed"])
def test_nothing_lives_on_and_no_folder_is_left(folder: Path, what: str) -> None:
    with ProcessGroups() as groups:
        with pytest.raises(WorkerEnded):
            run_s(groups, launch(folder, what, "600"), time.monotonic() + 1.5)
        assert (groups._children, groups._folders) == ([], [])
        assert not any(
            "patient" in " ".join(each.cmdline()) for each in psutil.Process().children()
        )
    if what == "breed":
        assert gone(int((folder / "pid").read_text()))


def test_the_changed_program_runs_once_before_and_then_each_in_turn(folder: Path) -> None:
    with ProcessGroups() as groups:
        unchanged, changed = launch(folder, "sleep", "0"), launch(folder, "rest")
        ratios = play_launches(groups, unchanged, changed, soon())
    assert len(ratios) == ROUNDS
    first, *rest = runs(folder)
    assert first == "rest"
    rounds = [set(rest[each : each + 2]) for each in range(0, 2 * ROUNDS, 2)]
    assert rounds == [{"sleep", "rest"}] * ROUNDS
    assert len(rest) == 2 * ROUNDS


def test_the_order_in_a_round_is_left_to_chance(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdoctor.trials.launches.random.shuffle", list.reverse)
    with ProcessGroups() as groups:
        play_launches(groups, launch(folder, "sleep", "0"), launch(folder, "rest"), soon())
    assert runs(folder) == ["rest", *["rest", "sleep"] * ROUNDS]


def test_what_starts_faster_has_the_higher_ratio(folder: Path) -> None:
    with ProcessGroups() as groups:
        slow, fast = launch(folder, "sleep", "1"), launch(folder, "rest")
        assert min(play_launches(groups, slow, fast, soon())) > 0


def test_what_the_first_run_keeps_makes_the_later_ones_faster(folder: Path) -> None:
    with ProcessGroups() as groups:
        unchanged, caching = launch(folder, "sleep", "1"), launch(folder, "cache", "1.5")
        assert min(play_launches(groups, unchanged, caching, soon())) > 0


def test_a_changed_program_that_fails_ends_the_trial_at_once(folder: Path) -> None:
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match="the disk is gone"):
        play_launches(groups, launch(folder, "sleep", "0"), launch(folder, "fail"), soon())
    assert runs(folder) == ["fail"]


def test_an_unchanged_program_that_fails_ends_the_trial_too(folder: Path) -> None:
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match="the disk is gone"):
        play_launches(groups, launch(folder, "fail"), launch(folder, "rest"), soon())


def test_a_budget_that_is_too_short_is_seen_after_one_run(folder: Path) -> None:
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match="budget"):
        slow = launch(folder, "sleep", "2")
        play_launches(groups, slow, slow, time.monotonic() + 8)
    assert runs(folder) == ["sleep"]
