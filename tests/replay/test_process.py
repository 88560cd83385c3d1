"""A live process that replays a step: its orders, its answers, and how it may fail."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.replay import process as module
from perfdoctor.replay.__main__ import CHECKED
from perfdoctor.replay.process import ReplayProcess, made
from perfdoctor.schema.capture import AS_IT_IS, Capture, Conditions
from perfdoctor.schema.fix import Change
from perfdoctor.trials.live import OutOfTime, WorkerEnded
from tests.replay.captured import Captured, captured, training
from tests.trials.programs import soon

AS_SEEN, FOR_EVER = Conditions(), Conditions(sleep_ms=(1e8,))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return captured(training, tmp_path_factory.mktemp("training"))


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    """Of which nothing is left when the test is over."""
    with ProcessGroups() as groups:
        yield groups
        assert (groups._children, groups._folders) == ([], [])


def started(
    groups: ProcessGroups, found: Captured, change: Change | None = None, **env: str
) -> ReplayProcess:
    known = {**os.environ, **env}
    return ReplayProcess(groups, known, found.folder, found.capture, change or Change())


def test_it_answers_each_order(groups: ProcessGroups, trained: Captured) -> None:
    with started(groups, trained) as process:
        for conditions in (AS_SEEN, Conditions(sleep_ms=(2.0,)), AS_SEEN):
            answer = process.run(conditions, 0.05, soon())
            assert answer.steps >= 1 and answer.wall_s > 0
        assert answer.failure is None


def test_it_takes_no_time_between_orders(groups: ProcessGroups, trained: Captured) -> None:
    with started(groups, trained) as process:
        process.run(AS_SEEN, 0.05, soon())
        child = psutil.Process(process._child.pid)
        before = child.cpu_times()
        time.sleep(0.5)
        after = child.cpu_times()
    assert after.user + after.system - before.user - before.system < 0.4


def test_what_it_can_not_do_is_told_and_it_lives_on(
    groups: ProcessGroups, trained: Captured, tmp_path: Path
) -> None:
    (call,) = trained.capture.calls
    lacking = msgspec.structs.replace(
        trained.capture,
        calls=(msgspec.structs.replace(call, programs={AS_IT_IS: "none.bin"}),),
    )
    (tmp_path / "capture.json").write_bytes(msgspec.json.encode(lacking))
    with ReplayProcess(groups, dict(os.environ), tmp_path, lacking, Change()) as process:
        for _ in range(2):
            with pytest.raises(WorkerEnded, match=r"FileNotFoundError: .*none\.bin"):
                process.run(AS_SEEN, 0.05, soon())


def test_when_the_budget_ends_before_its_step_it_is_given_up(
    groups: ProcessGroups, trained: Captured
) -> None:
    with started(groups, trained) as process:
        process.run(AS_SEEN, 0.05, soon())
        with pytest.raises(OutOfTime, match="before its step could be replayed"):
            process.run(FOR_EVER, 0.05, time.monotonic() + 0.2)
        child = process._child
    assert not child.is_running()


def test_one_that_aborts_says_why(groups: ProcessGroups, trained: Captured) -> None:
    with (
        started(groups, trained, XLA_FLAGS="--no_such_flag=1") as process,
        pytest.raises(WorkerEnded, match=r"no_such_flag|status -6"),
    ):
        process.run(AS_SEEN, 0.05, soon())


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.abort()", "ended with status -6"),
        ("os.kill(os.getpid(), 9)", "killed, as the kernel does when memory runs out"),
        ("raise MemoryError('80 GiB')", "out of memory: MemoryError: 80 GiB"),
        ("raise KeyError('state')", "KeyError: 'state'"),
        ("print('what', flush=True); time.sleep(60)", "its answer can't be read: "),
    ],
)
def test_however_it_ends_is_said(
    groups: ProcessGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text(f"import os, sys, time\nsys.stdin.readline()\n{end}\n")
    monkeypatch.setattr(module, "MODULE", "broken")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    nothing = Capture(calls=(), settings={}, env={})
    with ReplayProcess(groups, env, tmp_path, nothing, Change()) as process:
        with pytest.raises(WorkerEnded) as raised:
            process.run(AS_SEEN, 0.05, soon())
        assert str(raised.value).startswith(said)


def test_one_that_is_gone_takes_no_more_orders(groups: ProcessGroups, trained: Captured) -> None:
    with started(groups, trained) as process:
        process._child.kill()
        process._child.wait()
        for _ in range(2):
            with pytest.raises(WorkerEnded, match="killed"):
                process.run(AS_SEEN, 0.05, soon())
        assert not process.lives


def test_it_has_the_scripts_environment_and_that_of_the_change(
    groups: ProcessGroups, trained: Captured
) -> None:
    then = msgspec.structs.replace(
        trained.capture, env={"TF_TEST_MADE": "1"}, unset=("TF_TEST_GONE",)
    )
    change = Change(env={"TF_TEST_CHANGED": "2"})
    env = {**os.environ, "TF_TEST_GONE": "3", "TF_TEST_KEPT": "4"}
    with ReplayProcess(groups, env, trained.folder, then, change) as process:
        process.run(AS_SEEN, 0.05, soon())
        seen = psutil.Process(process._child.pid).environ()
    found = {name: value for name, value in seen.items() if name.startswith("TF_TEST_")}
    assert found == {"TF_TEST_MADE": "1", "TF_TEST_CHANGED": "2", "TF_TEST_KEPT": "4"}


def test_it_runs_on_the_cores_of_the_change(groups: ProcessGroups, trained: Captured) -> None:
    core = min(os.sched_getaffinity(0))
    with started(groups, trained, Change(cores=(core,))) as process:
        process.run(AS_SEEN, 0.05, soon())
        assert os.sched_getaffinity(process._child.pid) == {core}


def test_a_setting_goes_with_the_variable_that_a_change_takes_away() -> None:
    """Else the value that the program had would come back, and nothing would be gained."""
    then = {"jax_disable_most_optimizations": True, "jax_enable_x64": True, "jax_platforms": None}
    unset = Change(env={"JAX_DISABLE_MOST_OPTIMIZATIONS": None}, settings={"jax_enable_x64": False})
    assert made(then, unset) == {"jax_enable_x64": False, "jax_platforms": None}
    assert made(then, Change(env={"OMP_NUM_THREADS": "1"})) == then


def compiled(
    groups: ProcessGroups, found: Captured, change: Change | None = None, **conditions: Any
) -> set[Path]:
    """What of the step is found compiled, once it was run so."""
    at_once = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with started(groups, found, change, **at_once) as process:
        process.run(Conditions(**conditions), 0.05, soon())
    return set(found.folder.glob("compiled/*/jit_step-*-cache"))


def test_a_program_is_compiled_once_for_all_that_run_it_alike(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    found = captured(training, tmp_path)
    first = compiled(groups, found, donated=False)
    assert len(first) == 1  # not for its first step and the others
    assert compiled(groups, found, donated=False) == first
    cores = Change(cores=(min(os.sched_getaffinity(0)),))
    new = compiled(groups, found, cores, donated=False) - first
    assert new and not {each.parent for each in new} & {each.parent for each in first}


def test_what_the_script_has_compiled_is_not_compiled_again(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    found = captured(training, tmp_path)
    assert not compiled(groups, found)
    assert compiled(groups, found, Change(env={"XLA_FLAGS": ""}))  # it may compile otherwise


@pytest.mark.parametrize("name", [each for each in CHECKED if "nans" in each or "infs" in each])
def test_where_each_result_is_checked_it_is_compiled_anew(
    groups: ProcessGroups, tmp_path: Path, name: str
) -> None:
    assert compiled(groups, captured(training, tmp_path, {name: True}))
