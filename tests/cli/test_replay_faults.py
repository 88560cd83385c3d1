"""Whatever a script does while its step is captured, and wherever that fails, a report is made."""

import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import pytest

from tests.cli.test_interruption import relatives
from tests.command import perfdoctor
from tests.long import long_but
from tests.scripts_that_fail import FOR_EVER, TRAINING

IGNORED = "competing-processes,throttling"
LIMIT_S = 120.0
"""Generous: reached only where something is wrong."""


@dataclass(frozen=True)
class Case:
    """A script, what its output has to be, and what has to be in the report."""

    name: str
    script: str
    output: str = ""
    says: str = "No cause of slowness found"
    ends_quietly: bool = True
    """Whether Ctrl-C, by which we end it, makes it write nothing more."""


CASES = (
    Case(
        "catches KeyboardInterrupt",
        TRAINING
        + """
while True:
    try:
        for _ in range(100):
            params = step(params, x)
        params.block_until_ready()
    except KeyboardInterrupt:
        pass
""",
    ),
    Case(
        "executes itself",
        "import os, sys\n"
        "if 'AGAIN' not in os.environ:\n"
        "    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, 'AGAIN': '1'})\n"
        "print('again', flush=True)\n" + TRAINING + FOR_EVER,
        "again\n",
        says="no training step within",  # what it executes is not observed
        ends_quietly=False,
    ),
    Case(
        "forks",
        TRAINING
        + """
import os, time, warnings
warnings.simplefilter("ignore")
step(params, x).block_until_ready()
for _ in range(2):
    if os.fork() == 0:
        time.sleep(600)
"""
        + FOR_EVER,
    ),
    Case(
        "calls from several threads",
        TRAINING
        + """
import threading
def train(params):
    while True:
        for _ in range(100):
            params = step(params, x)
        params.block_until_ready()
for _ in range(2):
    threading.Thread(target=train, args=(params,), daemon=True).start()
train(params)
""",
        says="perfdoctor 0",
        ends_quietly=False,
    ),
    Case(
        "deletes its arrays",
        TRAINING
        + """
while True:
    before, params = params, step(params, x)
    params.block_until_ready()
    before.delete()
""",
        says="perfdoctor ",
    ),
    Case(
        "prints while it is traced",
        TRAINING.replace("    return", "    print('traced', flush=True)\n    return") + FOR_EVER,
        "traced\n",
    ),
    Case(
        "calls back to Python",
        TRAINING.replace(
            "    return",
            "    jax.debug.callback(lambda total: None, params.sum())\n    return",
        )
        + FOR_EVER,
        says="ms alone",
    ),
    Case(
        "removes what is saved",
        TRAINING
        + """
import shutil, tempfile
from pathlib import Path
for folder in Path(tempfile.gettempdir()).iterdir():
    if not any(folder.iterdir()):
        shutil.rmtree(folder)
"""
        + FOR_EVER,
        says="FileNotFoundError",
    ),
)

SHORT = ("forks", "calls back to Python", "removes what is saved", "executes itself")


@pytest.mark.parametrize("case", long_but(SHORT, CASES, attrgetter("name")))
def test_whatever_a_script_does_the_report_is_made(case: Case, tmp_path: Path) -> None:
    folder, temporary, mark = tmp_path / "work", tmp_path / "tmp", uuid.uuid4().hex
    folder.mkdir()
    temporary.mkdir()
    (folder / "train.py").write_text(case.script)
    answer = perfdoctor(
        *("check", "train.py", "--budget", "40", "--ignore", IGNORED, "--script-output", "log"),
        env={"PERFDOCTOR_TEST": mark, "TMPDIR": str(temporary)},
        cwd=folder,
    )
    assert case.says in " ".join(answer.stdout.split())
    assert answer.returncode == 3 if "no training step" in case.says else answer.returncode <= 1
    output = (folder / "log").read_text()
    assert output == case.output or (not case.ends_quietly and output.startswith(case.output))
    assert relatives(mark) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    temporary, mark = tmp_path / "tmp", uuid.uuid4().hex
    temporary.mkdir()
    (tmp_path / "train.py").write_text(TRAINING + FOR_EVER)
    child = subprocess.Popen(
        [sys.executable, "-m", "perfdoctor", "check", "train.py", "--budget", "60"],
        env={**os.environ, "PERFDOCTOR_TEST": mark, "TMPDIR": str(temporary)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + LIMIT_S
    while not any("perfdoctor.replay" in each.cmdline() for each in relatives(mark)):
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    child.send_signal(number)
    assert child.wait(LIMIT_S) == 3
    assert relatives(mark) == []
    assert list(temporary.iterdir()) == []
