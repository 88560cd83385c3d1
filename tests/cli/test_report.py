"""`perfdoctor report` and `perfdoctor schema`: the commands, as a user calls them."""

import json
import subprocess
from pathlib import Path

import pytest

from perfdoctor.report.formats import REPORT
from tests.command import ROOT, perfdoctor

OBSERVED = ROOT / "tests" / "observations"
SLOW = str(OBSERVED / "slow_etl.json")


def test_a_saved_report_is_written_again_in_any_format(tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    assert perfdoctor("check", SLOW, "--format", "json", "--output", str(saved)).returncode == 1
    for format in REPORT:
        direct = perfdoctor("check", SLOW, "--format", format)
        again = perfdoctor("report", str(saved), "--format", format)
        assert (again.returncode, again.stderr) == (0, "")
        if format not in ("json", "sarif", "html", "trace"):  # these tell when they were made
            assert again.stdout == direct.stdout


def test_an_observation_is_diagnosed() -> None:
    answer = perfdoctor("report", SLOW)
    assert answer.returncode == 0
    assert "1 cause, its fix: 3.19×" in answer.stdout


def test_two_stand_side_by_side() -> None:
    answer = perfdoctor("report", SLOW, str(OBSERVED / "healthy.json"))
    assert answer.returncode == 0
    assert answer.stdout.splitlines()[4].startswith("1 cause gone; the run is 1.94× as fast")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((SLOW, "--format", "markdwn"), "did you mean markdown?"),
        ((SLOW, "--format", "bmf"), "a report can't be written as bmf; expected terminal, json"),
        (("none.json",), "none.json: No such file or directory"),
        ((SLOW, SLOW, SLOW), "3 files; expected one, or two"),
        ((SLOW, "--output", "nowhere/report.md"), "nowhere"),
        ((SLOW, "--open"), "--open shows a page, and --format terminal makes none; use html"),
        ((str(ROOT / "pyproject.toml"),), "no report, observation or benchmark of perfdoctor"),
        ((SLOW, SLOW, "--format", "sarif"), "two reports side by side can't be written as sarif"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple[str, ...], said: str) -> None:
    answer = perfdoctor("report", *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in in_one_line(answer.stderr) and "Traceback" not in answer.stderr


def in_one_line(error: str) -> str:
    """Without the frame that typer draws."""
    return " ".join(error.replace("│", " ").split())


def test_quiet_is_one_line() -> None:
    assert perfdoctor("check", SLOW, "--quiet").stdout.count("\n") == 1
    assert perfdoctor("report", SLOW, "-q").stdout.endswith("[etl]\n")


def test_findings_stand_on_the_lines_of_the_repository(tmp_path: Path) -> None:
    data = tmp_path / "src" / "reference" / "data.py"
    data.parent.mkdir(parents=True)
    data.write_text("\n" * 100)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    told = perfdoctor("report", SLOW, "--format", "github", cwd=data.parent).stdout
    assert told.startswith("::warning file=src/reference/data.py,line=80,")
    json_told = perfdoctor("report", SLOW, "--format", "json", cwd=tmp_path).stdout
    location = json.loads(json_told)["findings"][0]["location"]
    assert location == {"file": "src/reference/data.py", "line": 80}


def test_outside_of_a_repository_no_line_is_known(tmp_path: Path) -> None:
    env = {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    told = perfdoctor("report", SLOW, "--format", "github", cwd=tmp_path, env=env).stdout
    assert told.startswith("::warning title=perfdoctor%3A etl::")


@pytest.mark.parametrize("kind", ["report", "observation", "benchmark", "difference"])
def test_schemas_are_printed(kind: str) -> None:
    answer = perfdoctor("schema", kind)
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["title"] == f"perfdoctor.{kind}/1"


def test_a_schema_that_there_is_not_is_named() -> None:
    answer = perfdoctor("schema", "reports")
    assert answer.returncode == 2 and "did you mean report?" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", SLOW, "--select", "elt"), "there is no check 'elt'; did you mean etl?"),
        (("check", SLOW, "--ignore", "memry"), "did you mean memory?"),
        (("explain", "recompile"), "did you mean recompilation?"),
        (("check", SLOW, "--format", "serif"), "did you mean sarif?"),
        (("bench", "--format", "bfm"), "did you mean bmf?"),
        (("check", "--formt", "json"), "--format"),
        (("chek",), "there is no command 'chek'; did you mean check?"),
    ],
)
def test_errors_name_the_nearest_that_there_is(arguments: tuple[str, ...], said: str) -> None:
    answer = perfdoctor(*arguments)
    assert answer.returncode == 2
    assert said in in_one_line(answer.stderr)
