"""A target that can be run: how it is launched, and how a change to it is measured."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import Change, Speeds
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.parts import Parts
from perfdoctor.targets import named, script, workload
from perfdoctor.targets.reference import dataset
from perfdoctor.trials.change import changed_env, changed_workload, merged
from perfdoctor.trials.launches import play_launches
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.on_object import on_the_object
from perfdoctor.trials.pair import OWN_SLICE_S, OWN_SLICE_STEPS, play_pair
from perfdoctor.trials.way import Play, Way, on_the_program
from perfdoctor.trials.worker import Worker, calls_of, own_steps

NO_FUNCTION = ""
"""The name of the step's function where no steps were seen: copies of a script then count all that
it calls."""


@dataclass(frozen=True)
class Runner:
    """What the doctor needs to know of a target."""

    launch: Launch
    ways: Callable[[Observation], list[Way]]
    """How changes are measured on the program itself, given what was observed of it."""
    parts: Callable[[], Parts | None] = lambda: None
    """Of a workload object that has run: what it is made of; a UsageError if it is none."""


def folders_of(target: Target) -> list[Path]:
    """The folders of the program's own code; to be asked before it runs, for it may remove them."""
    if target.workload is not None:
        return [Path(dataset.__file__).parent]
    if target.kind == "workload":
        return [Path.cwd()]
    try:
        return [Path.cwd(), Path(target.name).parent.resolve()]
    except FileNotFoundError:  # the working directory is gone already
        return []


def runner_of(
    target: Target, groups: ProcessGroups, output: int, say: Callable[[str], None], *, copied: bool
) -> Runner:
    """A target, ready to be run; `output`, `copied`: of a script."""
    if target.kind == "script":
        return script_runner(target, groups, output, say, copied=copied)
    if target.workload is None:
        return object_runner(target, groups, output)
    return workload_runner(target, groups, say)


@contextmanager
def output_of(file: Path | None) -> Iterator[int]:
    """The file descriptor that a script's output goes to; stderr without a file."""
    if file is None:
        yield sys.stderr.fileno()
        return
    with file.open("wb") as stream:
        yield stream.fileno()


def workload_runner(target: Target, groups: ProcessGroups, say: Callable[[str], None]) -> Runner:
    """The reference loop on the target's workload."""
    plan = target.workload
    if plan is None:
        raise UsageError(f"{target.name} is no workload")
    folder, numbers = groups.folder(), count()

    def launch(change: Change) -> Launch:
        changed = changed_workload(plan, change)
        data = dataset.ensure(changed, groups, say)
        started = workload.launch(changed, folder / f"{next(numbers)}.json", data)
        return replace(started, env=changed_env(started.env, change, folder))

    def worker(change: Change, until: float) -> Worker:
        return Worker(groups, launch(change), own_steps, until, tells_steps=True)

    def play_steps(change: Change, until: float) -> list[float]:
        with worker(Change(), until) as unchanged, worker(change, until) as changed:
            return play_pair(unchanged, changed, until, OWN_SLICE_S, OWN_SLICE_STEPS)

    def play_whole(change: Change, until: float) -> list[float]:
        return play_launches(groups, launch(Change()), launch(change), until)

    plays: dict[Speeds, Play] = {"steps": play_steps, "launch": play_whole}
    return Runner(launch(Change()), lambda seen: on_the_program(plays, seen.set_in_code))


def script_runner(
    target: Target, groups: ProcessGroups, output: int, say: Callable[[str], None], *, copied: bool
) -> Runner:
    """The user's script; `copied`: trials run it in copies of the working directory."""
    started = script.launch(target, output)
    folder = groups.folder()

    @contextmanager
    def launched(change: Change) -> Iterator[Launch]:
        env = changed_env(started.env, change, folder)
        with working_directory(groups, say) if copied else nullcontext() as where:
            yield replace(started, env=env, output=None, folder=where)

    def ways(seen: Observation) -> list[Way]:
        function = seen.steps.function if seen.steps else NO_FUNCTION

        def play_steps(change: Change, until: float) -> list[float]:
            with (
                launched(Change()) as unchanged,
                launched(change) as changed,
                Worker(groups, unchanged, calls_of(function, Change()), until) as one,
                Worker(groups, changed, calls_of(function, change), until) as other,
            ):
                return play_pair(one, other, until)

        def play_whole(change: Change, until: float) -> list[float]:
            with launched(Change()) as unchanged, launched(change) as changed:
                return play_launches(groups, unchanged, changed, until)

        return on_the_program({"steps": play_steps, "launch": play_whole}, seen.set_in_code)

    return Runner(started, ways)


def object_runner(target: Target, groups: ProcessGroups, output: int) -> Runner:
    """The loop of the user's workload object."""
    folder, numbers = groups.folder(), count()
    observed = folder / "told"

    def worker(change: Change, until: float) -> Worker:
        number = next(numbers)
        orders, told = folder / f"{number}.json", folder / f"{number}.told"
        started = named.launch(target.name, change, orders, told)
        env = changed_env(started.env, change, folder)
        return Worker(groups, replace(started, env=env), own_steps, until, tells_steps=True)

    def play(base: Change, change: Change, until: float) -> list[float]:
        with worker(base, until) as one, worker(merged([base, change]), until) as other:
            return play_pair(one, other, until, OWN_SLICE_S, OWN_SLICE_STEPS)

    def ways(seen: Observation) -> list[Way]:
        parts = seen.target.parts
        return [] if parts is None else [on_the_object(play, parts, seen)]

    started = named.launch(target.name, Change(), folder / "orders.json", observed, output)
    return Runner(started, ways, lambda: named.parts_told(observed))


@contextmanager
def working_directory(groups: ProcessGroups, say: Callable[[str], None]) -> Iterator[Path]:
    """A throw-away copy of it; WorkerEnded if it can't be made."""
    say("copying the working directory")
    here, folder = Path.cwd(), groups.folder()
    copy = folder / here.name
    try:
        try:
            shutil.copytree(here, copy, symlinks=True, ignore_dangling_symlinks=True)
        except OSError as error:  # shutil.Error is one
            raise WorkerEnded(f"{here} can't be copied: {error}") from None
        yield copy
    finally:
        groups.discard(folder)
