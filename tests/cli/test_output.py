import webbrowser
from pathlib import Path

import pytest

from perfdoctor.cli.output import (
    PIPED_WIDTH,
    is_on_screen,
    open_page,
    output_width,
    page_to_open,
    write,
)
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


def test_a_page_to_open_is_html_and_has_a_file(tmp_path: Path) -> None:
    assert page_to_open("html", tmp_path / "report.html") == tmp_path / "report.html"
    made = page_to_open("html", None)
    assert made.name == "report.html" and made.parent.is_dir()
    made.parent.rmdir()
    with pytest.raises(UsageError, match="--format markdown makes none; use html"):
        page_to_open("markdown", None)


@pytest.mark.parametrize("opens", [True, False])
def test_a_page_is_opened_or_named(
    opens: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def told(address: str) -> bool:
        asked.append(address)
        return opens

    monkeypatch.setattr(webbrowser, "open", told)
    file = tmp_path / "a report.html"
    open_page(file)
    assert asked == [file.as_uri()]
    assert (str(file) in capsys.readouterr().err) is not opens
