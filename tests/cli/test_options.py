import pytest
import typer

from perfdoctor.cli.options import percent
from tests.command import perfdoctor
from tests.recorded import saved


@pytest.mark.parametrize(
    ("text", "share", "said"),
    [
        ("5%", 0.05, ""),
        ("5 %", 0.05, ""),
        ("0.5%", 0.005, ""),
        ("150%", 1.5, ""),
        ("0%", 0.0, ""),
        ("5", 0.05, "perfdoctor: 5 is read as 5%\n"),
        ("1", 0.01, "perfdoctor: 1 is read as 1%\n"),
        ("0.05", 0.05, "perfdoctor: 0.05 is read as 5%\n"),
        (".5", 0.5, "perfdoctor: .5 is read as 50%\n"),
    ],
)
def test_a_bare_number_of_one_or_more_is_a_percentage(
    text: str, share: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert percent(text) == pytest.approx(share)
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("text", ["much", "", "-5%", "5%%", "1000%", "1000", "nan", "1e3"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no percentage; expected one such as 5%"):
        percent(text)


def test_the_command_says_once_how_it_read_a_bare_number() -> None:
    answer = perfdoctor("check", str(saved("slow_etl")), "--min-gain", "5")
    assert answer.returncode == 1
    assert answer.stderr == "perfdoctor: 5 is read as 5%\n"
