"""What `--against` names: another commit, another target, or numbers that were saved."""

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from perfdoctor.bench.git import imported_from, resolved, top_level, worktree
from perfdoctor.files import read_saved
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.benchmark import BENCHMARK_SCHEMA, Benchmark, Recipe
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.targets.resolve import resolve

GIT = "git:"
"""What the name of a commit to compare with begins with."""
FOR_EVER = 10**9
"""Steps of a workload, which must outlast its measurement."""


@dataclass(frozen=True)
class Contender:
    """A target that can be run, and the folder in which it runs; None: ours."""

    target: Target
    folder: Path | None = None
    path: tuple[Path, ...] = ()
    """Folders from which it imports before all others."""

    def launch(self, launch: Launch) -> Launch:
        """Its target's launch, where it runs and imports."""
        if self.folder is None:
            return launch
        path = [*map(str, self.path), *filter(None, [launch.env.get("PYTHONPATH")])]
        env = {**launch.env, "PYTHONPATH": os.pathsep.join(path)} if path else launch.env
        return replace(launch, folder=self.folder, env=env)


@contextmanager
def contender(
    against: str, candidate: Recipe, groups: ProcessGroups
) -> Iterator[Contender | Benchmark]:
    """What the candidate is compared with: a program that can be run, or numbers if it can't."""
    if against.startswith(GIT):
        with at_commit(against.removeprefix(GIT), candidate, groups) as found:
            yield found
    elif not against.endswith(".json"):
        arguments = candidate.arguments if against.endswith(".py") else ()
        yield Contender(endless(resolve(against, None, arguments)))
    else:
        saved = read_benchmark(Path(against))
        if saved.recipe.workload is not None:
            kind, name = saved.target.kind, saved.target.name
            yield Contender(Target(kind=kind, name=name, workload=saved.recipe.workload))
        elif (commit := commit_here(saved)) is not None:
            with at_commit(commit, saved.recipe, groups) as found:
                yield found
        else:
            yield saved


@contextmanager
def at_commit(ref: str, recipe: Recipe, groups: ProcessGroups) -> Iterator[Contender]:
    """A target as it was at another commit, in a worktree."""
    here = Path.cwd()
    root = top_level(here)
    with worktree(groups, root, resolved(root, ref)) as copy:
        folder = copy / here.relative_to(root)
        if not folder.is_dir():
            raise UsageError(f"git:{ref}: it has no folder {here.relative_to(root)}")
        with chdir(folder):
            try:
                name = in_copy(recipe.name, root, copy)
                target = resolve(name, recipe.module, recipe.arguments)
            except UsageError as error:
                raise UsageError(f"git:{ref}: {error}") from None
        path = tuple(copy / each for each in imported_from(root))
        yield Contender(endless(target), folder, path)


def in_copy(name: str | None, root: Path, copy: Path) -> str | None:
    """A target that is named by its whole path, in a copy of the repository that it lies in."""
    if name is None or not Path(name).is_absolute():
        return name
    file = Path(name).resolve()
    if not file.is_relative_to(root.resolve()):
        raise UsageError(f"{name} is not in the repository {root}")
    return str(copy / file.relative_to(root.resolve()))


def commit_here(saved: Benchmark) -> str | None:
    """The commit from which the numbers are, if all of the program is in it, and it is here."""
    if saved.source is None or saved.source.dirty:
        return None
    try:
        return resolved(top_level(Path.cwd()), saved.source.commit)
    except UsageError:
        return None


def endless(target: Target | Observation) -> Target:
    """The target, as one that trains until it is stopped, if that is ours to say."""
    if isinstance(target, Observation):
        raise UsageError("a saved observation can't be run; `perfdoctor check` reads it")
    if target.workload is None:
        return target
    training = msgspec.structs.replace(target.workload.training, steps=FOR_EVER)
    workload = msgspec.structs.replace(target.workload, training=training)
    return msgspec.structs.replace(target, workload=workload)


def read_benchmark(file: Path) -> Benchmark:
    """Saved numbers."""
    if not file.exists():
        raise UsageError(f"{file}: no such file; `perfdoctor bench --save {file}` makes a baseline")
    return read_saved(file, Benchmark, BENCHMARK_SCHEMA, "benchmark")
