"""What a shell offers after a tab."""

import os
import subprocess
import sys

import pytest

from perfdoctor.catalogue import checks
from perfdoctor.report.formats import REPORT

AS_INSTALLED = "import sys; sys.argv[0] = 'perfdoctor'; from perfdoctor.cli import main; main()"


def completed(**env: str) -> str:
    """What the installed command answers to a shell."""
    command = [sys.executable, "-c", AS_INSTALLED]
    answer = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    return answer.stdout


def offered(line: str) -> set[str]:
    """By bash, at the end of the line."""
    words = line.split(" ")
    last = str(len(words) - 1)
    told = completed(_PERFDOCTOR_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=last)
    return set(told.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perfdoctor ch", {"check"}),
        ("perfdoctor check --sel", {"--select"}),
        ("perfdoctor check --format ma", {"markdown"}),
        ("perfdoctor schema obs", {"observation"}),
        ("perfdoctor explain host", {"host-sync"}),
        ("perfdoctor check --select recomp", {"recompilation"}),
        ("perfdoctor check --format ", set(REPORT)),
        ("perfdoctor explain ", {check.id for check in checks()}),
    ],
)
def test_what_begins_so_is_offered(line: str, expected: set[str]) -> None:
    assert offered(line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_can_be_shown(shell: str) -> None:
    assert "_PERFDOCTOR_COMPLETE" in completed(_PERFDOCTOR_COMPLETE=f"source_{shell}")
