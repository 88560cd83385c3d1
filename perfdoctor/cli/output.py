"""Where the text of a command goes: to stdout, or to a file."""

import sys
from pathlib import Path

PIPED_WIDTH = 100


def output_width() -> int:
    """Columns for what goes to stdout: of the terminal, within reason; fixed in a pipe."""
    import shutil

    if not sys.stdout.isatty():
        return PIPED_WIDTH
    return max(60, min(140, shutil.get_terminal_size().columns))


def is_on_screen(file: Path | None) -> bool:
    """Whether a person reads it at once; `file`: of the option --output."""
    return file is None and sys.stdout.isatty()


def write(text: str, file: Path | None) -> None:
    """To the file of --output; a UsageError if it can't be written."""
    from perfdoctor.files import write_whole

    if file is None:
        sys.stdout.write(text)
    else:
        write_whole(file, text.encode())
