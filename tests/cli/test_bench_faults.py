"""`perfdoctor bench --against`, where something goes wrong in the middle of a comparison."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import msgspec
import pytest

from perfdoctor.schema.benchmark import Benchmark
from tests.bench.test_git import git
from tests.cli.test_interruption import relatives
from tests.command import LIMIT_S, perfdoctor
from tests.long import LONG
from tests.scripts_that_fail import FOR_EVER, TRAINING

COUNTING = """
import os, pathlib
launch = len(os.listdir("launches"))
pathlib.Path("launches", str(os.getpid())).touch()
"""
"""The first launch is the observed one, each further one is of a pair."""
FAILS = """
for i in range(10**9):
    params = step(params, x).block_until_ready()
    if launch >= {first} and i == 200:
        {how}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a baseline that trains for ever."""
    (tmp_path / "base.py").write_text(TRAINING + FOR_EVER)
    (tmp_path / "launches").mkdir()
    return tmp_path


def against_base(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return perfdoctor(
        *("bench", "train.py", "--against", "base.py", "--threshold", "900%"),
        *("--script-output", "log", "--save", "found.json", *options),
        cwd=folder,
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param(
            "raise RuntimeError('the node is gone')", "RuntimeError: the node is gone", marks=LONG
        ),
        pytest.param("import numpy; numpy.ones(1 << 50)", "out of memory: ", marks=LONG),
        ("os._exit(7)", "status 7"),
    ],
)
def test_a_side_that_fails_in_the_first_pair_is_no_verdict(
    how: str, said: str, folder: Path
) -> None:
    (folder / "train.py").write_text(COUNTING + TRAINING + FAILS.format(first=1, how=how))
    answer = against_base(folder, "--budget", "60")
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.count("\n") == 1 and said in answer.stderr
    assert "before two pairs were measured" in answer.stderr


@LONG
def test_a_side_that_fails_later_is_no_pass_and_what_was_measured_is_kept(folder: Path) -> None:
    how = "raise RuntimeError('the node is gone')"
    (folder / "train.py").write_text(COUNTING + TRAINING + FAILS.format(first=3, how=how))
    answer = against_base(folder, "--budget", "120")
    assert answer.returncode == 3, answer.stdout
    assert "RuntimeError: the node is gone" in " ".join(answer.stdout.split())
    found = msgspec.json.decode((folder / "found.json").read_bytes(), type=Benchmark)
    assert found.comparison is not None and found.comparison.verdict == "inconclusive"
    assert len(found.launches) == 2


def test_a_budget_for_no_pair_is_no_verdict(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINING + FOR_EVER)
    answer = against_base(folder, "--budget", "24")
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.count("\n") == 1 and "the budget ended" in answer.stderr


def test_a_full_disk_is_named_as_soon_as_there_is_something_to_save(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING + FOR_EVER)
    options = ("--save", "/dev/full", "--script-output", os.devnull, "--budget", "60")
    answer = perfdoctor("bench", "train.py", *options, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    expected = "perfdoctor: /dev/full cannot be written: No space left on device\n"
    assert answer.stderr == expected


def test_an_interruption_leaves_no_copy_of_the_repository_and_no_process(folder: Path) -> None:
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "train.py").write_text(COUNTING + TRAINING + FOR_EVER)
    git(folder, "add", "train.py")
    git(folder, "commit", "--quiet", "-m", "a script")
    mark = uuid.uuid4().hex
    temporary = folder / "temporary"
    temporary.mkdir()
    (folder / "launches" / ".gitkeep").touch()
    git(folder, "add", "-f", "launches/.gitkeep")
    git(folder, "commit", "--quiet", "-m", "a folder")
    command = [sys.executable, "-m", "perfdoctor", "bench", "train.py", "--against", "git:HEAD"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PERFDOCTOR_TEST": mark, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + LIMIT_S
    while len(list((folder / "launches").iterdir())) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3
    assert errors.splitlines()[-1].startswith("perfdoctor: interrupted")
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert (relatives(mark), list(temporary.iterdir())) == ([], [])
