import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.bench.git import imported_from, resolved, source, top_level, worktree
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.errors import UsageError


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(folder), *settings, *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits; the second one changes train.py."""
    folder = tmp_path / "a_repository_whose_path_is_long_enough_to_be_as_long_as_that_of_a_copy"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for text in ("old", "new"):
        (folder / "train.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", text)
    return folder


def test_the_state_of_a_repository(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    clean = source(repository)
    assert clean is not None and (clean.commit, clean.dirty) == (commit, False)
    (repository / "data.bin").write_text("untracked files are no change")
    assert source(repository) == clean
    (repository / "train.py").write_text("changed")
    dirty = source(repository)
    assert dirty is not None and dirty.dirty


def test_no_repository_has_no_state(tmp_path: Path) -> None:
    assert source(tmp_path) is None
    with pytest.raises(UsageError, match="not in a git repository"):
        top_level(tmp_path)


def test_without_git_there_is_no_state(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source(repository) is None
    with pytest.raises(UsageError, match="git is not installed"):
        resolved(repository, "main")


@pytest.mark.parametrize("ref", ["nowhere", "", "--help", "HEAD:train.py"])
def test_a_name_that_means_no_commit(repository: Path, ref: str) -> None:
    with pytest.raises(UsageError, match="no such commit"):
        resolved(repository, ref)


def test_another_commit_lies_in_a_folder_whose_path_is_as_long(repository: Path) -> None:
    with ProcessGroups() as groups:
        with worktree(groups, top_level(repository), resolved(repository, "HEAD~1")) as copy:
            assert (copy / "train.py").read_text() == "old"
            assert len(str(copy)) == len(str(repository))
            assert len(git(repository, "worktree", "list").splitlines()) == 2
        assert not copy.exists()
        assert groups._folders == []
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain") == ""


def test_a_copy_goes_also_when_what_was_done_with_it_failed(repository: Path) -> None:
    with ProcessGroups() as groups:
        with pytest.raises(ZeroDivisionError), worktree(groups, repository, "HEAD"):
            print(1 / 0)
        assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_packages_are_imported_from_where_python_finds_them_in_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "lib").mkdir()
    (repository / "project" / "src").mkdir(parents=True)
    installed = tmp_path / "site-packages"
    record = installed / "mine-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    origin = {"url": (repository / "project").as_uri(), "dir_info": {"editable": True}}
    (record / "direct_url.json").write_text(json.dumps(origin))
    inside = str(repository / "lib")
    monkeypatch.setattr(sys, "path", [str(repository), inside, *sys.path[1:], str(installed)])
    found = {str(each) for each in imported_from(repository)}
    assert found == {"lib", "project", "project/src"}


def test_an_environment_in_the_repository_is_no_code_of_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(repository / ".venv"))
    monkeypatch.setattr(sys, "path", ["", str(repository / ".venv" / "lib" / "site-packages")])
    assert imported_from(repository) == ()
