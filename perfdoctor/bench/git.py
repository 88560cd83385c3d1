"""The git repository in which a target lies, and other commits of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlparse

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.benchmark import Source
from perfdoctor.schema.errors import UsageError

LIMIT_S = 60.0
"""Seconds that a git command may take."""


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """git in a folder; a UsageError if there is no git."""
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed; --against git:REF needs it") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} did not end within {LIMIT_S:.0f} s") from None


def source(folder: Path) -> Source | None:
    """The state of the repository around a folder; None if there is none, or no git."""
    try:
        commit = git(folder, "rev-parse", "HEAD")
        changed = git(folder, "status", "--porcelain", "--untracked-files=no")
    except UsageError:
        return None
    if commit.returncode:
        return None
    return Source(commit=commit.stdout.strip(), dirty=bool(changed.stdout.strip()))


def top_level(folder: Path) -> Path:
    """The repository's root; a UsageError if the folder is in none."""
    found = git(folder, "rev-parse", "--show-toplevel")
    if found.returncode:
        raise UsageError(f"{folder} is not in a git repository; --against git:REF needs one")
    return Path(found.stdout.strip())


def python_files(root: Path) -> list[str]:
    """Those of a repository that git knows, or would add; from its root."""
    which = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py")
    return [name for name in git(root, *which).stdout.split("\0") if name]


def resolved(folder: Path, ref: str) -> str:
    """The commit that a name means; a UsageError if it means none."""
    found = git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if found.returncode or ref.startswith("-"):
        raise UsageError(f"git:{ref}: this repository has no such commit, branch or tag")
    return found.stdout.strip()


@contextmanager
def worktree(groups: ProcessGroups, root: Path, commit: str) -> Iterator[Path]:
    """A commit's files in a folder of their own, whose path is as long as the repository's if that
    is possible: the length of paths moves memory, which can change speed by some percent.
    """
    folder = groups.folder()
    missing = len(str(root)) - len(str(folder)) - 1
    copy = folder / ("w" * max(1, missing))
    added = git(root, "worktree", "add", "--detach", "--quiet", str(copy), commit)
    try:
        if added.returncode:
            raise UsageError(f"git worktree add failed: {added.stderr.strip().splitlines()[-1]}")
        yield copy
    finally:
        git(root, "worktree", "remove", "--force", str(copy))
        groups.discard(folder)


def imported_from(root: Path) -> tuple[Path, ...]:
    """The folders below a repository's root, relative to it, from which Python imports packages.

    A project that is installed as editable is imported from the repository by every program, also
    by one that runs in a worktree: without these folders of its own on PYTHONPATH, two commits
    would be compared by the code of one.
    """
    environment = Path(sys.prefix).resolve()
    found = [Path(entry).resolve() for entry in sys.path[1:] if entry]
    for project in editable_projects():
        found += [each for each in (project, project / "src") if each.is_dir()]
    below = [each for each in found if each.is_relative_to(root.resolve())]
    own = [each for each in below if not each.is_relative_to(environment)]
    return tuple(dict.fromkeys(each.relative_to(root.resolve()) for each in own))


def editable_projects() -> Iterator[Path]:
    """The folders of the projects that are installed as editable (PEP 610)."""
    for distribution in distributions():
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            yield Path(unquote(urlparse(origin["url"]).path)).resolve()
