"""Each command of docs/tutorial.md does what the page says, in the order in which they stand there.

A comment before a block, `<!-- test: … -->`, says what the block is: the text of a file, a function
that replaces another, or commands, of which the last exits as told, and writes the words told.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import LIMIT_S, ROOT
from tests.long import LONG

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- test: (.+?) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
GIT = {
    "GIT_AUTHOR_NAME": "A Reader",
    "GIT_AUTHOR_EMAIL": "reader@example.org",
    "GIT_COMMITTER_NAME": "A Reader",
    "GIT_COMMITTER_EMAIL": "reader@example.org",
}


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """One command, as a shell would run it."""
    words = shlex.split(command)
    if words[0] == "perfdoctor":
        words[:1] = [sys.executable, "-m", "perfdoctor"]
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **GIT},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def run_all(commands: list[str], told: str, folder: Path) -> Path:
    """The commands of a block; the folder in which the next one goes on."""
    expected = re.fullmatch(r"exit (\d)(?:, says (\w+))?", told)
    assert expected is not None, told
    for number, command in enumerate(commands, 1):
        if command.startswith("cd "):
            folder = folder / command[3:]
            continue
        answer = run(command, folder)
        is_last = number == len(commands)
        shown = f"{command}\n{answer.stdout}\n{answer.stderr}"
        assert answer.returncode == (int(expected[1]) if is_last else 0), shown
        if is_last and expected[2]:
            assert expected[2] in answer.stdout, shown
    return folder


def replaced(text: str, name: str, function: str) -> str:
    """A program with another function of that name."""
    changed, count = re.subn(
        rf"def {name}\(.*?(?=\n\n\n)", lambda _: function.strip(), text, flags=re.S
    )
    assert count == 1
    return changed


@pytest.mark.skipif(sys.platform != "linux", reason="both sides are suspended and resumed")
@LONG
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path
    for told, language, text in BLOCK.findall(PAGE):
        assert told, f"no test says what this block is: {text}"
        if told.startswith("file "):
            (folder / told.removeprefix("file ")).write_text(text)
        elif found := re.fullmatch(r"replace (\w+) in (\S+)", told):
            file = folder / found[2]
            file.write_text(replaced(file.read_text(), found[1], text))
        else:
            assert language == "console"
            commands = [line.removeprefix("$ ") for line in text.splitlines()]
            folder = run_all(commands, told, folder)
