"""Where the text of a command goes: to stdout, or to a file; and what its reader's screen shows."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdoctor.report.screen import Screen

PIPED_WIDTH = 100
"""Columns of what goes into a pipe or a file, where no terminal has a width."""
NARROWEST, WIDEST = 60, 200
"""Columns between which the width of a terminal is taken as it is: tables need the one, and lines
longer than the other are hard to read."""
LINKING = ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "rio", "mintty")
"""Values of TERM_PROGRAM of terminals that show hyperlinks (OSC 8)."""
LINKING_TERMS = ("xterm-kitty", "alacritty", "foot", "xterm-ghostty", "contour")
"""Values of TERM of further terminals that show hyperlinks."""
LINKING_SIGNS = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM")
"""Variables that only such terminals set."""
FIRST_VTE = 5000
"""VTE_VERSION from which on GNOME's terminals show them."""


def output_width() -> int:
    """Columns for what goes to stdout: of the terminal, within reason; fixed in a pipe."""
    import shutil

    if not sys.stdout.isatty():
        return PIPED_WIDTH
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))


def is_on_screen(file: Path | None) -> bool:
    """Whether a person reads it at once; `file`: of the option --output."""
    return file is None and sys.stdout.isatty()


def screen(
    file: Path | None,
    links: Mapping[str, str] | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> "Screen":
    """What the reader's terminal shows; in a pipe or a file plain text of a fixed width.

    `links`: URI by place (file:line).
    """
    from perfdoctor.report.screen import Detail, Screen

    detail = Detail.quiet if quiet else Detail.verbose if verbose else Detail.normal
    if not is_on_screen(file):
        return Screen(width=PIPED_WIDTH, detail=detail)
    shown = (links or {}) if shows_links() else {}
    return Screen(width=output_width(), colour=has_colour(), detail=detail, links=shown)


def has_colour() -> bool:
    """Whether the terminal shows colours, and the user wants them (NO_COLOR)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shows_links() -> bool:
    """Whether the terminal shows hyperlinks; FORCE_HYPERLINK decides it, where it is set."""
    env = os.environ
    if "FORCE_HYPERLINK" in env:
        return env["FORCE_HYPERLINK"] not in ("", "0")
    if env.get("TERM") == "dumb" or "TMUX" in env or "CI" in env:
        return False
    if env.get("TERM_PROGRAM") in LINKING or env.get("TERM") in LINKING_TERMS:
        return True
    vte = env.get("VTE_VERSION", "")
    return any(sign in env for sign in LINKING_SIGNS) or (vte.isdigit() and int(vte) >= FIRST_VTE)


def write(text: str, file: Path | None) -> None:
    """Write a text to stdout, or to the file of --output; a UsageError if that can't be written."""
    from perfdoctor.files import write_whole

    if file is not None:
        write_whole(file, text.encode())
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def page_to_open(format: str, file: Path | None) -> Path:
    """The file of a page that is to be opened; a UsageError if the format makes none."""
    from perfdoctor.schema.errors import UsageError

    if format != "html":
        raise UsageError(f"--open shows a page, and --format {format} makes none; use html")
    if file is not None:
        return file
    return Path(tempfile.mkdtemp(prefix="perfdoctor-")) / "report.html"


def open_page(file: Path) -> None:
    """Open a page in the user's browser; where there is none, say where the page is."""
    import webbrowser

    if not webbrowser.open(file.resolve().as_uri()):
        print(f"perfdoctor: no browser could be opened; the page is {file}", file=sys.stderr)
