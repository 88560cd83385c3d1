"""What a terminal gets: a real one (a pseudo-terminal), of different widths and abilities."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.command import ROOT, perfdoctor

SLOW = "tests/observations/slow_etl.json"
SAYING = ("NO_COLOR", "TERM", "TERM_PROGRAM", "FORCE_HYPERLINK", "VTE_VERSION", "CI", "TMUX")
"""Variables that say what a terminal shows; none is passed on."""
LINK = re.compile(r"\x1b\]8;[^;]*;([^\x1b]+)\x1b\\(.*?)\x1b\]8;;\x1b\\")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


def shown(*arguments: str, columns: int = 100, env: Mapping[str, str] | None = None) -> str:
    """What `perfdoctor report` writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in SAYING}
    process = subprocess.Popen(
        [sys.executable, "-m", "perfdoctor", "report", SLOW, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": str(columns), **(env or {})},
        cwd=ROOT,
    )
    os.close(theirs)
    written = b""
    while chunk := read(ours):
        written += chunk
    os.close(ours)
    assert process.wait(60) == 0
    return written.decode().replace("\r\n", "\n")


def read(file: int) -> bytes:
    """The next bytes; none once the other side is closed."""
    try:
        return os.read(file, 65_536)
    except OSError:
        return b""


def plain(text: str) -> str:
    """Without codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", LINK.sub(r"\2", text))


def test_a_terminal_gets_colours() -> None:
    assert COLOUR.search(shown())


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_gets_none(env: dict[str, str]) -> None:
    assert "\x1b" not in shown(env=env)


def test_a_pipe_gets_plain_text() -> None:
    assert "\x1b" not in perfdoctor("report", str(ROOT / SLOW)).stdout


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_lines_are_as_long_as_the_terminal_is_wide(columns: int) -> None:
    lengths = [len(line) for line in plain(shown(columns=columns)).splitlines()]
    assert columns - 30 <= max(lengths) <= columns


@pytest.mark.parametrize(
    ("env", "linked"),
    [
        ({"TERM_PROGRAM": "WezTerm"}, True),
        ({"VTE_VERSION": "7600"}, True),
        ({"VTE_VERSION": "4200"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"FORCE_HYPERLINK": "1"}, True),
        ({"FORCE_HYPERLINK": "0", "TERM_PROGRAM": "WezTerm"}, False),
        ({"TERM_PROGRAM": "WezTerm", "CI": "true"}, False),
        ({}, False),
    ],
)
def test_places_are_links_where_the_terminal_shows_them(env: dict[str, str], linked: bool) -> None:
    links = [(uri, plain(text)) for uri, text in LINK.findall(shown(columns=200, env=env))]
    file = (ROOT / "perfdoctor/targets/reference/data.py").as_uri()
    assert links == ([(file, "reference/data.py:80")] * 2 if linked else [])


def test_links_need_no_colours() -> None:
    text = shown(columns=200, env={"NO_COLOR": "1", "FORCE_HYPERLINK": "1"})
    assert LINK.search(text) and not COLOUR.search(text)


def test_a_file_gets_plain_text_though_the_terminal_has_colours(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    assert shown("--output", str(file)) == ""
    assert "\x1b" not in file.read_text() and "1 cause" in file.read_text()


def test_what_an_encoding_lacks_is_replaced() -> None:
    answer = perfdoctor("report", str(ROOT / SLOW), env={"PYTHONIOENCODING": "ascii"})
    assert answer.returncode == 0 and answer.stdout.isascii()
    assert "3.19? (2.80?3.64)" in answer.stdout
