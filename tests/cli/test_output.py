from pathlib import Path

import pytest

from perfdoctor.cli.output import PIPED_WIDTH, is_on_screen, output_width, write
from perfdoctor.schema.errors import UsageError


def test_text_goes_to_stdout_or_to_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("shown", None)
    write("kept", tmp_path / "report.txt")
    assert capsys.readouterr().out == "shown"
    assert (tmp_path / "report.txt").read_text() == "kept"


def test_a_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/report\.txt cannot be written"):
        write("lost", tmp_path / "nowhere" / "report.txt")


def test_what_goes_to_a_pipe_or_a_file_is_on_no_screen(tmp_path: Path) -> None:
    assert not is_on_screen(None)  # pytest captures stdout
    assert not is_on_screen(tmp_path / "report.txt")
    assert output_width() == PIPED_WIDTH
