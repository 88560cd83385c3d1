"""What --against names, up to the launch of the baseline."""

import os
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perfdoctor.bench.against import FOR_EVER, Contender, contender, endless
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.benchmark import Benchmark, Recipe, Source
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.report import ReportTarget
from perfdoctor.schema.workload import Workload
from tests.bench.made import benchmark
from tests.bench.test_git import git, repository

__all__ = ["repository"]
SCRIPT = Recipe(name="train.py", module=None, arguments=("--epochs", "1"), workload=None)


def saved(folder: Path, found: Benchmark) -> str:
    """The file that --save makes of it."""
    file = folder / "baseline.json"
    file.write_bytes(msgspec.json.encode(found))
    return str(file)


def runnable(against: str, candidate: Recipe, groups: ProcessGroups) -> tuple[Contender, str]:
    """A baseline that can be run, and the text of its script."""
    with contender(against, candidate, groups) as found:
        assert isinstance(found, Contender)
        return found, ((found.folder or Path()) / found.target.name).read_text()


@pytest.fixture
def inside(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the repository, of which Python imports `lib`."""
    monkeypatch.chdir(repository)
    monkeypatch.setattr(sys, "path", [*sys.path, str(repository / "lib")])
    return repository


def test_a_commit_runs_in_a_copy_and_imports_from_it(inside: Path) -> None:
    with ProcessGroups() as groups, contender("git:HEAD~1", SCRIPT, groups) as found:
        assert isinstance(found, Contender) and found.folder is not None
        assert (found.folder / found.target.name).read_text() == "old"
        assert found.target.args == ("--epochs", "1")
        launch = found.launch(Launch(("train.py",), {"PYTHONPATH": "elsewhere"}))
        assert launch.folder == found.folder
        copied = str(found.folder / "lib")
        assert launch.env["PYTHONPATH"].split(os.pathsep) == [copied, "elsewhere"]


def test_a_script_that_is_named_by_its_whole_path_is_the_copys_too(inside: Path) -> None:
    whole = replace(SCRIPT, name=str(inside / "train.py"))
    with ProcessGroups() as groups:
        assert runnable("git:HEAD~1", whole, groups)[1] == "old"


def test_a_script_outside_of_the_repository_is_in_no_commit(inside: Path, tmp_path: Path) -> None:
    outside = replace(SCRIPT, name=str(tmp_path / "train.py"))
    with (
        ProcessGroups() as groups,
        pytest.raises(UsageError, match="not in the repository"),
        contender("git:HEAD", outside, groups),
    ):
        pass


def test_another_target_runs_as_it_stands(inside: Path) -> None:
    (inside / "other.py").write_text("other")
    with ProcessGroups() as groups:
        found, text = runnable("other.py", SCRIPT, groups)
    assert (text, found.folder, found.target.args) == ("other", None, ("--epochs", "1"))
    launch = Launch(("other.py",), {"A": "B"})
    assert found.launch(launch) == launch


def test_numbers_of_a_commit_that_is_here_are_measured_again(inside: Path) -> None:
    commit = git(inside, "rev-parse", "HEAD~1")
    clean = replace(benchmark(), source=Source(commit=commit, dirty=False))
    with ProcessGroups() as groups:
        assert runnable(saved(inside, clean), SCRIPT, groups)[1] == "old"


@pytest.mark.parametrize(
    "source",
    [None, Source(commit="HEAD", dirty=True), Source(commit="0" * 40, dirty=False)],
)
def test_numbers_of_what_is_not_here_stay_numbers(inside: Path, source: Source | None) -> None:
    kept = replace(benchmark(), source=source)
    with ProcessGroups() as groups, contender(saved(inside, kept), SCRIPT, groups) as found:
        assert found == kept


def test_a_saved_workload_is_run_again_anywhere(tmp_path: Path) -> None:
    kept = replace(
        benchmark(),
        target=ReportTarget(kind="workload", name="a.toml", args=()),
        recipe=Recipe(name="a.toml", module=None, arguments=(), workload=Workload()),
    )
    with ProcessGroups() as groups, contender(saved(tmp_path, kept), SCRIPT, groups) as found:
        assert isinstance(found, Contender) and found.target.workload == Workload()


def test_a_workload_trains_until_it_is_stopped() -> None:
    from perfdoctor.targets.resolve import resolve

    target = endless(resolve(None))
    assert target.workload is not None and target.workload.training.steps == FOR_EVER
