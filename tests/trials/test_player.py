import os
import time
from pathlib import Path

import psutil
import pytest

from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.slices import Slice
from perfdoctor.trials.live import PlayerEnded
from perfdoctor.trials.player import Player
from tests.awaited import await_status

LIMIT_S = 30.0
"""Generous: reached only where something is wrong."""

PATIENT = """
import json, os, subprocess, sys
from pathlib import Path

def answer(steps):
    taken = {"wall_s": 0.01 * steps, "cpu_s": 0.02 * steps, "compiles": 0}
    print(json.dumps({"steps": steps, "samples": 8 * steps, **taken}), flush=True)

def train():
    for line in sys.stdin:
        answer(int(line))

def die():
    sys.stdin.readline()
    print("a warning that came before", file=sys.stderr)
    sys.exit("RuntimeError: the disk is gone")

def die_early():
    sys.exit("ImportError: no such module")

def die_silently():
    sys.stdin.readline()
    os._exit(7)

def exhaust():
    sys.stdin.readline()
    raise MemoryError("cannot allocate 80 GiB")

def exhaust_and_say_more():
    sys.stdin.readline()
    print("XlaRuntimeError: RESOURCE_EXHAUSTED: 80 GiB", file=sys.stderr)
    sys.exit("see the log")

def be_killed():
    sys.stdin.readline()
    os.kill(os.getpid(), 9)

def hang():
    while True:
        sys.stdin.readline()

def breed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(sys.argv[2]).write_text(str(child.pid))
    train()

def stutter():
    for line in sys.stdin:
        print('{"steps": %d, "samples": 1, "wall_s"' % int(line), end="", flush=True)
        print(': 1.0, "cpu_s": 1.0, "compiles": 0}', flush=True)

globals()[sys.argv[1]]()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which Python finds the patient."""
    (tmp_path / "patient.py").write_text(PATIENT)
    return tmp_path


def launch(folder: Path, *arguments: str) -> Launch:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return Launch(command=("-m", "patient", *arguments), env=env)


def newest_child() -> psutil.Process:
    """The process that the player has started."""
    return max(psutil.Process().children(), key=lambda child: child.create_time())


def gone(pid: int) -> bool:
    """Whether a process ends, at most as a zombie that nobody collects."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def why_it_ended(folder: Path, what: str, within_s: float = LIMIT_S) -> str:
    """What is said of a child that can't answer."""
    with (
        Ward() as ward,
        Player(ward, launch(folder, what)) as player,
        pytest.raises(PlayerEnded) as raised,
    ):
        player.run(1, within_s)
    return str(raised.value)


def test_runs_as_many_steps_as_it_is_told(folder: Path) -> None:
    with Ward() as ward, Player(ward, launch(folder, "train")) as player:
        first, second = player.run(3, LIMIT_S), player.run(50, LIMIT_S)
    assert first == Slice(steps=3, samples=24, wall_s=0.03, cpu_s=0.06, compiles=0)
    assert second.steps == 50
    assert second.samples_per_s == pytest.approx(800)


def test_asking_does_not_wait_for_the_answer(folder: Path) -> None:
    with Ward() as ward:
        one, other = (Player(ward, launch(folder, "train")) for _ in range(2))
        one.ask(1)
        other.ask(2)
        assert (one.answer(LIMIT_S).steps, other.answer(LIMIT_S).steps) == (1, 2)


def test_is_suspended_whenever_it_has_nothing_to_do(folder: Path) -> None:
    with Ward() as ward, Player(ward, launch(folder, "train")) as player:
        for _ in range(2):
            player.run(1, LIMIT_S)
            await_status(newest_child(), psutil.STATUS_STOPPED)


def test_its_children_are_suspended_and_resumed_with_it(folder: Path) -> None:
    with Ward() as ward, Player(ward, launch(folder, "breed", str(folder / "pid"))) as player:
        player.run(1, LIMIT_S)
        grandchild = psutil.Process(int((folder / "pid").read_text()))
        await_status(grandchild, psutil.STATUS_STOPPED)
        player.ask(1)
        await_status(grandchild, psutil.STATUS_SLEEPING)


def test_an_answer_that_comes_in_pieces_is_one_answer(folder: Path) -> None:
    with Ward() as ward, Player(ward, launch(folder, "stutter")) as player:
        assert [player.run(n, LIMIT_S).steps for n in (1, 2)] == [1, 2]


def test_a_child_that_dies_is_reported_with_its_last_line(folder: Path) -> None:
    assert why_it_ended(folder, "die") == "RuntimeError: the disk is gone"


def test_a_child_that_died_before_it_was_asked_is_reported_too(folder: Path) -> None:
    with Ward() as ward, Player(ward, launch(folder, "die_early")) as player:
        await_status(newest_child(), psutil.STATUS_ZOMBIE)
        with pytest.raises(PlayerEnded, match="ImportError: no such module"):
            player.run(1, LIMIT_S)


def test_a_child_that_dies_without_a_word_is_reported_with_its_status(folder: Path) -> None:
    assert why_it_ended(folder, "die_silently") == "ended with status 7"


def test_exhausted_memory_is_reported_as_such(folder: Path) -> None:
    assert why_it_ended(folder, "exhaust").startswith("out of memory: MemoryError: cannot allocate")


def test_exhausted_memory_is_found_above_the_last_line(folder: Path) -> None:
    assert "out of memory: XlaRuntimeError: RESOURCE_EXHAUSTED" in why_it_ended(
        folder, "exhaust_and_say_more"
    )


def test_a_child_that_is_killed_may_have_run_out_of_memory(folder: Path) -> None:
    assert "killed, as the kernel does when memory runs out" in why_it_ended(folder, "be_killed")


def test_a_child_that_never_answers_is_given_up(folder: Path) -> None:
    assert why_it_ended(folder, "hang", within_s=0.2).startswith("no answer within")


@pytest.mark.parametrize("what", ["train", "hang"])
def test_nothing_lives_on_and_no_folder_is_left(folder: Path, what: str) -> None:
    with Ward() as ward:
        player = Player(ward, launch(folder, what))
        child, logs = newest_child(), ward._folders[0]
        player.ask(1)
        assert logs.exists()
    assert not child.is_running()
    assert not logs.exists()


def test_a_suspended_child_and_its_children_are_ended_too(folder: Path) -> None:
    with Ward() as ward:
        player = Player(ward, launch(folder, "breed", str(folder / "pid")))
        child = newest_child()
        player.run(1, LIMIT_S)
        await_status(child, psutil.STATUS_STOPPED)
    assert not child.is_running()
    assert gone(int((folder / "pid").read_text()))
