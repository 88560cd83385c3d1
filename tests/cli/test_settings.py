from pathlib import Path

import pytest

from perfdoctor.cli.settings import settings
from perfdoctor.schema.errors import UsageError
from tests.command import perfdoctor

OPTIONS = {"check": {"budget", "min_gain"}, "bench": {"threshold", "on_inconclusive"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a project, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "pyproject.toml"


def test_options_are_read_by_command(project: Path) -> None:
    project.write_text(
        '[tool.perfdoctor.check]\nmin-gain = "3%"\n'
        '[tool.perfdoctor.bench]\non_inconclusive = "warn"\n'
    )
    assert settings(OPTIONS) == {
        "check": {"min_gain": "3%"},
        "bench": {"on_inconclusive": "warn"},
    }


@pytest.mark.parametrize("content", [None, "[tool.ruff]\n", "not [ toml", "\xff"])
def test_without_a_table_of_ours_nothing_is_set(content: str | None, project: Path) -> None:
    if content is not None:
        project.write_bytes(content.encode("latin-1"))
    assert settings(OPTIONS) == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[tool.perfdoctor.chek]", "unknown key tool.perfdoctor.chek; did you mean check?"),
        ("[tool.perfdoctor.check]\nminimal-gain = 1", "did you mean min-gain?"),
        ("[tool.perfdoctor.check]\nxyz = 1", "known: budget, min-gain"),
        ("[tool.perfdoctor]\ncheck = 3", "tool.perfdoctor.check = 3; expected a table"),
        ("[tool]\nperfdoctor = 3", "tool.perfdoctor = 3; expected a table"),
    ],
)
def test_a_wrong_key_is_named(content: str, said: str, project: Path) -> None:
    project.write_text(content)
    with pytest.raises(UsageError) as error:
        settings(OPTIONS)
    assert said in str(error.value) and "pyproject.toml" in str(error.value)


def test_the_command_line_goes_before_the_project(project: Path) -> None:
    project.write_text('[tool.perfdoctor.check]\nselect = "nonsense"\n')
    wrong = perfdoctor("check", "none.toml", cwd=project.parent)
    assert wrong.returncode == 2
    project.write_text('[tool.perfdoctor.bench]\nthreshold = "much"\n')
    refused = perfdoctor("bench", "none.toml", cwd=project.parent)
    assert refused.returncode == 2 and "'much'" in refused.stderr
    taken = perfdoctor("bench", "none.toml", "--threshold", "3%", cwd=project.parent)
    assert "none.toml: no such file" in taken.stderr


def test_a_wrong_key_ends_the_command_in_a_sentence(project: Path) -> None:
    project.write_text("[tool.perfdoctor.bench]\nthreshhold = 1\n")
    answer = perfdoctor("bench", cwd=project.parent)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "did you mean threshold?" in answer.stderr
