"""The reference loop as a worker of a trial: it counts its steps, and rests when asked."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.workload import Data, Inference, Model, Training, Workload
from perfdoctor.targets.reference.generate import write
from perfdoctor.trials.worker import Worker, own_steps
from tests.awaited import await_status
from tests.trials.programs import await_calls, soon

TINY = Workload(
    model=Model(name="mlp", width=4, depth=1),
    data=Data(source="memory", examples=20, image_size=8, prefetch=0),
    training=Training(batch_size=3, steps=5, log_every=0),
)
SERVING = msgspec.structs.replace(TINY, inference=Inference(clients=3, batched=True))


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    with ProcessGroups() as groups:
        yield groups


def worker(groups: ProcessGroups, folder: Path, plan: Workload) -> Worker:
    """The reference loop on a workload, in a trial."""
    write(plan, folder)
    spec = folder / "workload.json"
    spec.write_bytes(msgspec.json.encode(plan))
    command = ("-m", "perfdoctor.targets.reference", str(spec), str(folder))
    return Worker(groups, Launch(command, dict(os.environ)), own_steps, soon(), tells_steps=True)


@pytest.mark.parametrize(("plan", "samples"), [(TINY, 3), (SERVING, 1)])
def test_it_makes_the_steps_that_it_is_asked_for(
    tmp_path: Path, groups: ProcessGroups, plan: Workload, samples: int
) -> None:
    with worker(groups, tmp_path, plan) as live:
        await_calls(live, 20)  # more than the steps of the workload
        live.suspend()
        warm = live.compiles
        for steps in (5, 1, 90):
            live.run(steps)
        await_status(live.process, psutil.STATUS_STOPPED)
        assert [each.steps for each in live.slices[1:]] == [5, 1, 90]
        assert live.samples_per_step == samples
        assert 0 < warm == live.compiles
        assert live.compiling_s > 0


def test_what_it_compiles_later_is_counted_too(tmp_path: Path, groups: ProcessGroups) -> None:
    training = Training(batch_size=3, schedule="static", schedule_every=5, log_every=0)
    with worker(groups, tmp_path, msgspec.structs.replace(TINY, training=training)) as live:
        await_calls(live, 2)
        live.suspend()
        before = live.compiles
        live.run(10)
        assert live.compiles - before == 2


@pytest.mark.parametrize("plan", [TINY, SERVING])
def test_it_leaves_by_itself_when_it_is_ended(
    tmp_path: Path, groups: ProcessGroups, plan: Workload
) -> None:
    with worker(groups, tmp_path, plan) as live:
        await_calls(live, 20)
        live.suspend()
    assert live.process.returncode == 0
