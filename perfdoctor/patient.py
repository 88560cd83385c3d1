"""A target that can be run: how it is launched, and how a change to it is measured."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from perfdoctor.processes import Ward
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import Change, Speeds
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Target
from perfdoctor.targets import script, workload
from perfdoctor.targets.reference import dataset
from perfdoctor.trials.change import changed_env, changed_workload
from perfdoctor.trials.launches import play_launches
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.pair import OWN_SLICE_S, OWN_SLICE_STEPS, play_pair
from perfdoctor.trials.trial import Play
from perfdoctor.trials.worker import Worker, calls_of, own_steps

HALF_OF_THE_DEVICE = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".4"}
"""Share of an accelerator's memory that each process of a pair takes at its start: by default it
would be three quarters, and the second one could not start."""


@dataclass(frozen=True)
class Patient:
    """What the doctor needs to know of a target."""

    launch: Launch
    plays: Callable[[str], Mapping[Speeds, Play]]
    """How to measure a change, given the jitted function that makes the steps."""


def patient_of(
    target: Target, ward: Ward, output: int, say: Callable[[str], None], *, copied: bool
) -> Patient:
    """A target, ready to be run; `output`, `copied`: of a script."""
    if target.kind == "script":
        return patient_of_script(target, ward, output, say, copied=copied)
    return patient_of_workload(target, ward, say)


@contextmanager
def output_of(file: Path | None) -> Iterator[int]:
    """The file descriptor that a script's output goes to; stderr without a file."""
    if file is None:
        yield sys.stderr.fileno()
        return
    with file.open("wb") as stream:
        yield stream.fileno()


def patient_of_workload(target: Target, ward: Ward, say: Callable[[str], None]) -> Patient:
    """The reference loop on the target's workload."""
    plan = target.workload
    if plan is None:
        raise UsageError(f"{target.name} is no workload")
    folder, numbers = ward.folder(), count()

    def launch(change: Change) -> Launch:
        changed = changed_workload(plan, change)
        data = dataset.ensure(changed, ward, say)
        started = workload.launch(changed, folder / f"{next(numbers)}.json", data)
        return replace(started, env=changed_env(started.env, change, folder))

    def worker(change: Change, until: float) -> Worker:
        started = launch(change)
        halved = replace(started, env={**HALF_OF_THE_DEVICE, **started.env})
        return Worker(ward, halved, own_steps, until, tells_steps=True)

    def play_steps(change: Change, until: float) -> list[float]:
        with worker(Change(), until) as unchanged, worker(change, until) as changed:
            return play_pair(unchanged, changed, until, OWN_SLICE_S, OWN_SLICE_STEPS)

    def play_whole(change: Change, until: float) -> list[float]:
        return play_launches(ward, launch(Change()), launch(change), until)

    return Patient(launch(Change()), lambda _: {"steps": play_steps, "launch": play_whole})


def patient_of_script(
    target: Target, ward: Ward, output: int, say: Callable[[str], None], *, copied: bool
) -> Patient:
    """The user's script; `copied`: trials run it in copies of the working directory."""
    started = script.launch(target, output)
    folder = ward.folder()

    @contextmanager
    def launched(change: Change) -> Iterator[Launch]:
        env = changed_env({**HALF_OF_THE_DEVICE, **started.env}, change, folder)
        with working_directory(ward, say) if copied else nullcontext() as where:
            yield replace(started, env=env, output=None, folder=where)

    def plays(function: str) -> Mapping[Speeds, Play]:
        def play_steps(change: Change, until: float) -> list[float]:
            with (
                launched(Change()) as unchanged,
                launched(change) as changed,
                Worker(ward, unchanged, calls_of(function, Change()), until) as one,
                Worker(ward, changed, calls_of(function, change), until) as other,
            ):
                return play_pair(one, other, until)

        def play_whole(change: Change, until: float) -> list[float]:
            with launched(Change()) as unchanged, launched(change) as changed:
                return play_launches(ward, unchanged, changed, until)

        return {"steps": play_steps, "launch": play_whole}

    return Patient(started, plays)


@contextmanager
def working_directory(ward: Ward, say: Callable[[str], None]) -> Iterator[Path]:
    """A throw-away copy of it; WorkerEnded if it can't be made."""
    say("copying the working directory")
    here, folder = Path.cwd(), ward.folder()
    copy = folder / here.name
    try:
        try:
            shutil.copytree(here, copy, symlinks=True, ignore_dangling_symlinks=True)
        except OSError as error:  # shutil.Error is one
            raise WorkerEnded(f"{here} can't be copied: {error}") from None
        yield copy
    finally:
        ward.discard(folder)
