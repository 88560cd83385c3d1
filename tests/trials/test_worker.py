"""Live processes that count their steps and rest when asked: scripts, and programs of ours."""

import time
from collections.abc import Iterator

import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.trials import worker as module
from perfdoctor.trials.pair import warm_up
from perfdoctor.trials.worker import Worker
from tests.awaited import await_end, await_status
from tests.trials.programs import FOR_EVER, TRAINING, Place, await_calls, soon, why_it_ends


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    with ProcessGroups() as groups:
        yield groups


def test_a_script_that_ends_early_says_how_far_it_came(place: Place, groups: ProcessGroups) -> None:
    program = TRAINING + "train(jnp.ones((2, 2)), 7)"
    said = why_it_ends(place.scripted(groups, program))
    assert said == "the script ended after 7 steps; give it more"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise ValueError('no such file')", "ValueError: no such file"),
        ("sys.exit('FileNotFoundError: gone')", "FileNotFoundError: gone"),
        ("os._exit(7)", "begins"),
        ("os.kill(os.getpid(), 9)", "killed, as the kernel does when memory runs out"),
        ("raise MemoryError('80 GiB')", "out of memory: MemoryError: 80 GiB"),
        (
            "print('XlaRuntimeError: RESOURCE_EXHAUSTED: 80 GiB')\nsys.exit('see the log')",
            "out of memory: XlaRuntimeError: RESOURCE_EXHAUSTED: 80 GiB",
        ),
    ],
)
def test_a_script_that_fails_says_why(
    place: Place, groups: ProcessGroups, end: str, said: str
) -> None:
    program = f"import os, sys\nprint('begins', flush=True)\n{end}\n"
    assert why_it_ends(place.scripted(groups, program)) == said


def test_a_script_that_fails_without_a_word_tells_its_status(
    place: Place, groups: ProcessGroups
) -> None:
    assert why_it_ends(place.scripted(groups, "import os\nos._exit(7)")) == "ended with status 7"


def test_a_program_of_ours_that_fails_says_why(place: Place, groups: ProcessGroups) -> None:
    assert why_it_ends(place.own(groups, "train", 0.001, 8, 20)) == "worn out"
    assert "KeyError: 'no_such'" in why_it_ends(place.own(groups, "no_such"))


def runs_only_while_it_is_let(worker: Worker) -> None:
    await_calls(worker, 3)
    worker.suspend()
    worker.suspend()
    await_status(worker.process, psutil.STATUS_STOPPED)
    before = worker.counters.calls
    time.sleep(0.3)
    assert worker.counters.calls == before
    worker.run_for(0.5)
    await_status(worker.process, psutil.STATUS_STOPPED)
    assert worker.counters.calls > before
    assert len(worker.slices) == 2
    assert all(each.begin_ns < each.end_ns and each.whole for each in worker.slices)
    assert sum(each.steps for each in worker.slices) == worker.counters.calls


def test_a_script_runs_only_while_it_is_let(place: Place, groups: ProcessGroups) -> None:
    with place.scripted(groups, FOR_EVER) as worker:
        runs_only_while_it_is_let(worker)


def test_a_program_of_ours_runs_only_while_it_is_let(place: Place, groups: ProcessGroups) -> None:
    with place.own(groups, "train") as worker:
        runs_only_while_it_is_let(worker)


@pytest.mark.parametrize("stride", [1, 3])
def test_a_script_makes_as_many_steps_as_it_is_told(
    place: Place, groups: ProcessGroups, stride: int
) -> None:
    with place.scripted(groups, FOR_EVER, stride=stride) as worker:
        warm_up([worker], soon())
        worker.run_for(0.05)
        before = worker.counters.calls
        for steps in (7, 1, 2):
            worker.run(steps)
        assert worker.counters.calls - before == 10 * stride
        assert [each.steps for each in worker.slices[2:]] == [7, 1, 2]
        assert worker.samples_per_step == 1


def test_a_program_of_ours_makes_as_many_steps_as_it_is_told(
    place: Place, groups: ProcessGroups
) -> None:
    with place.own(groups, "train") as worker:
        await_calls(worker, 1)
        worker.suspend()
        for steps in (7, 1, 50):
            worker.run(steps)
        assert [each.steps for each in worker.slices[1:]] == [7, 1, 50]
        assert worker.samples_per_step == 8
        assert worker.makes_steps


def test_one_that_is_asked_to_rest_at_once_again_does(place: Place, groups: ProcessGroups) -> None:
    with place.own(groups, "train") as worker:
        await_calls(worker, 1)
        worker.suspend()
        for _ in range(20):
            worker._resume()
            worker.suspend()
        assert all(each.steps >= 1 for each in worker.slices[1:])


def test_its_children_are_suspended_and_resumed_with_it(
    place: Place, groups: ProcessGroups
) -> None:
    file = place.folder / "pid"
    with place.own(groups, "breed", file) as worker:
        await_calls(worker, 1)
        child = psutil.Process(int(file.read_text()))
        for _ in range(2):
            worker.suspend()
            await_status(child, psutil.STATUS_STOPPED)
            worker._resume()
            await_status(child, psutil.STATUS_SLEEPING)
        worker.suspend()
    await_end(child)


def test_one_that_makes_no_step_for_long_is_suspended_where_it_is(
    place: Place, groups: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_LIMIT_S", 0.3)
    program = TRAINING + "import time\ntrain(jnp.ones((2, 2)), 5)\ntime.sleep(10**6)"
    with place.scripted(groups, program) as worker:
        await_calls(worker, 5)
        worker.suspend()
        worker.run_for(0.1)
        await_status(worker.process, psutil.STATUS_STOPPED)
        assert worker.slices[-1].steps == 0 and worker.slices[-1].seconds > 0.3
        assert worker.slices[-1].whole


def test_when_the_time_is_up_it_is_suspended_where_it_is(
    place: Place, groups: ProcessGroups
) -> None:
    with place.own(groups, "hang", until=time.monotonic() + 1) as worker:
        worker.suspend()
        await_status(worker.process, psutil.STATUS_STOPPED)
        assert not worker.slices[-1].whole


LEAVING = """
import signal

def leave(number, frame):
    step(jnp.ones((2, 2))).block_until_ready()
    open("checkpoint", "w").close()
    sys.exit(1)

signal.signal(signal.SIGTERM, leave)
"""


def test_one_that_rests_may_still_call_its_step_on_leaving(
    place: Place, groups: ProcessGroups
) -> None:
    program = FOR_EVER.replace("def train", LEAVING + "\ndef train")
    with place.scripted(groups, program) as worker:
        warm_up([worker], soon())
    assert (place.folder / "checkpoint").exists()


@pytest.mark.parametrize("what", ["train", "hang"])
def test_one_that_is_left_is_ended_and_its_folder_gone(place: Place, what: str) -> None:
    with ProcessGroups() as groups:
        with place.own(groups, what) as worker:
            await_calls(worker, 1)
            if what == "train":
                worker.suspend()
        assert (groups._children, groups._folders) == ([], [])
        assert not worker.process.is_running()


def test_one_that_nobody_leaves_ends_with_its_ward(place: Place) -> None:
    with ProcessGroups() as groups:
        worker = place.own(groups, "train")
        folder = groups._folders[0]
        assert folder.exists()
    assert not worker.process.is_running() and not folder.exists()
