"""The git repository in which a target lies, and other commits of it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.processes import Ward
from perfdoctor.schema.benchmark import Source
from perfdoctor.schema.errors import UsageError

LIMIT_S = 60.0


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
        raise UsageError(f"{folder} is in no git repository; --against git:REF needs one")
    return Path(found.stdout.strip())


def resolved(folder: Path, ref: str) -> str:
    """The commit that a name means; a UsageError if it means none."""
    found = git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if found.returncode or ref.startswith("-"):
        raise UsageError(f"git:{ref}: this repository has no such commit, branch or tag")
    return found.stdout.strip()


@contextmanager
def worktree(ward: Ward, root: Path, commit: str) -> Iterator[Path]:
    """A commit's files in a folder of their own, whose path is as long as the repository's if that
    is possible: the length of paths moves memory, which can change speed by some percent.
    """
    folder = ward.folder()
    missing = len(str(root)) - len(str(folder)) - 1
    copy = folder / ("w" * max(1, missing))
    added = git(root, "worktree", "add", "--detach", "--quiet", str(copy), commit)
    try:
        if added.returncode:
            raise UsageError(f"git worktree add failed: {added.stderr.strip().splitlines()[-1]}")
        yield copy
    finally:
        git(root, "worktree", "remove", "--force", str(copy))
        ward.discard(folder)
