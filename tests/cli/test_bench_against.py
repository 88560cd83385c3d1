"""`perfdoctor bench --against`: two commits of a script, as a user compares them."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from perfdoctor.schema.benchmark import Benchmark
from tests.bench.test_git import git
from tests.command import perfdoctor
from tests.long import LONG

OLD = """
import jax, jax.numpy as jnp
from layers import WORK

@jax.jit
def step(x):
    for _ in range(WORK):
        x = jnp.tanh(x @ x)
    return x

x = jnp.ones((300, 300))
while True:
    x = step(x).block_until_ready()
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits of train.py, one of them with a comment more; it imports from src/layers.py."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "layers.py").write_text("WORK = 1")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for text in (OLD, "# a comment\n" + OLD):
        (folder / "train.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "a change")
    monkeypatch.setenv("PYTHONPATH", str(folder / "src"))
    return folder


def bench(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], Benchmark]:
    answer = perfdoctor(
        *("bench", "train.py", "--script-output", "log", "--format", "json"),
        *("--save", "found.json", *options),
        cwd=folder,
    )
    assert answer.stdout, answer.stderr
    saved = msgspec.json.decode((folder / "found.json").read_bytes(), type=Benchmark)
    assert msgspec.json.decode(answer.stdout, type=Benchmark) == saved
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    return answer, saved


def test_a_change_that_does_more_has_regressed_and_says_what_it_does(repository: Path) -> None:
    (repository / "src" / "layers.py").write_text("WORK = 3")
    options = ("--against", "git:HEAD", "--threshold", "50%", "--budget", "150")
    answer, found = bench(repository, *options)
    assert answer.returncode == 1, found.comparison
    comparison = found.comparison
    assert comparison is not None and comparison.verdict == "regressed"
    step = next(each for each in comparison.metrics if each.name == "step_time")
    assert step.low > 0 and step.change > 0.5
    flops = next(each for each in comparison.exact if each.name == "flops")
    assert isinstance(flops.before, float) and isinstance(flops.after, float)
    assert flops.after / flops.before == pytest.approx(3, rel=0.05)
    assert any(line.startswith("device +") for line in comparison.causes)
    assert len(found.launches) == comparison.pairs
    assert found.source is not None and found.source.dirty


@LONG
def test_a_comment_changes_nothing_that_is_exact(repository: Path) -> None:
    options = ("--against", "git:HEAD~1", "--threshold", "200%", "--budget", "150")
    answer, found = bench(repository, *options)
    assert answer.returncode == 0, found.comparison
    assert found.comparison is not None
    assert (found.comparison.verdict, found.comparison.exact) == ("pass", ())


@pytest.mark.parametrize(
    ("against", "said"),
    [
        ("git:nowhere", "no such commit, branch or tag"),
        ("base.json", "no such file; `perfdoctor bench --save base.json` makes a baseline"),
        ("other.py", "other.py: no such file"),
        ("main", "can't be examined"),
    ],
)
def test_a_baseline_that_there_is_none_of_is_named(
    against: str, said: str, repository: Path
) -> None:
    answer = perfdoctor("bench", "train.py", "--against", against, cwd=repository)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1 and said in answer.stderr


def test_a_commit_without_the_script_is_named(repository: Path) -> None:
    (repository / "new.py").write_text(OLD)
    answer = perfdoctor("bench", "new.py", "--against", "git:HEAD", cwd=repository)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "git:HEAD: new.py: no such file" in answer.stderr
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_baseline_that_fails_is_no_verdict(repository: Path) -> None:
    (repository / "broken.py").write_text("import jax\nraise ValueError('no data')")
    answer = perfdoctor(
        *("bench", "train.py", "--against", "broken.py", "--budget", "60"),
        *("--script-output", "log"),
        cwd=repository,
    )
    assert (answer.returncode, answer.stdout) == (3, "")
    assert "no data" in answer.stderr
