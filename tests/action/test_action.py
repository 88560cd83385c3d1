"""The GitHub Action: its steps are run in a real repository, against an API on this machine."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from action.comment import marker
from action.run import FILES, OPTIONS, command
from perfdoctor.report.formats import REPORT
from tests.action.runner import ACTION, Job
from tests.action.service import BOT, USER, Service, served
from tests.command import ROOT
from tests.recorded import saved

PULL_REQUEST = {"action": "synchronize", "number": 7, "pull_request": {"number": 7}}
MARK = "<!-- perfdoctor: perfdoctor -->"
SCHEMA = json.loads((ROOT / "tests" / "schemas" / "github-action.json").read_text())


@pytest.fixture
def service() -> Iterator[Service]:
    with served(Service()) as running:
        yield running


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With the lines that the observation names, and the observation."""
    folder = tmp_path / "repository"
    data = folder / "src" / "reference" / "data.py"
    data.parent.mkdir(parents=True)
    data.write_text("\n" * 100)
    shutil.copy(saved("slow_etl"), folder / "seen.json")
    shutil.copy(saved("healthy"), folder / "healthy.json")
    for arguments in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "all"),
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


def job(repository: Path, service: Service, event: Any = PULL_REQUEST) -> Job:
    return Job(repository, event, api=service.url)


def test_the_action_is_valid() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(ACTION)
    wrong = {**ACTION, "runs": {**ACTION["runs"], "steps": [{"run": "true"}]}}
    assert not jsonschema.Draft7Validator(SCHEMA).is_valid(wrong)


def test_a_pull_request_gets_one_comment_that_is_kept_up_to_date(
    repository: Path, service: Service
) -> None:
    first = job(repository, service)
    first.run(install="false", target="seen.json")
    (comment,) = service.comments
    assert comment["body"].startswith(f"{MARK}\n### perfdoctor check `seen.json`\n")
    assert "3.19×" in comment["body"] and comment["user"] == BOT
    second = job(repository, service)
    second.run(install="false", target="healthy.json")
    (comment,) = service.comments
    assert comment["body"].startswith(f"{MARK}\n### perfdoctor check `healthy.json`\n")
    assert (first.failed, second.failed) == ("Verdict", None)


def test_files_annotations_summary_and_outputs(repository: Path, service: Service) -> None:
    done = job(repository, service)
    done.run(install="false", target="seen.json")
    outputs = done.outputs["run"]
    assert outputs["exit-code"] == "1"
    folder = Path(outputs["folder"])
    expected = {"report.json", *(FILES[each] for each in FILES if each in REPORT)}
    assert {each.name for each in folder.iterdir()} == expected
    assert "::warning file=src/reference/data.py,line=80," in done.log
    assert done.summary == (folder / "report.md").read_text()
    assert done.used["actions/upload-artifact"] == {"name": "perfdoctor", "path": str(folder)}
    scanned = done.used["github/codeql-action/upload-sarif"]
    assert scanned == {"sarif_file": str(folder / "report.sarif"), "category": "perfdoctor"}
    sarif = json.loads((folder / "report.sarif").read_text())
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/reference/data.py"


def test_what_is_not_wanted_is_left_out(repository: Path, service: Service) -> None:
    done = job(repository, service)
    done.run(
        install="false",
        target="seen.json",
        comment="false",
        upload_artifact="false",
        upload_sarif="false",
        exit_zero="true",
    )
    assert (done.failed, done.used, service.requests) == (None, {}, [])


def test_without_a_pull_request_there_is_no_comment(repository: Path, service: Service) -> None:
    done = job(repository, service, {"ref": "refs/heads/main"})
    done.run(install="false", target="healthy.json")
    assert done.failed is None and service.requests == []


def test_comments_of_others_are_left_alone(repository: Path, service: Service) -> None:
    for number in range(120):  # more than a page
        service.add(f"comment {number}", USER)
    forged = service.add(f"{MARK}\nmine", USER)
    quoted = service.add(f"> {MARK}", BOT)
    other = service.add(f"{marker('gpu')}\nof another job", BOT)
    for _ in range(2):
        job(repository, service).run(install="false", target="seen.json")
    assert len(service.comments) == 124
    assert (forged["body"], quoted["body"]) == (f"{MARK}\nmine", f"> {MARK}")
    assert other["body"].endswith("of another job")
    assert service.comments[-1]["body"].startswith(MARK)


def test_the_comment_of_the_token_s_owner_is_found(repository: Path, service: Service) -> None:
    service.owner = "robot"
    service.add(f"{MARK}\nof another robot", BOT)
    for _ in range(2):
        job(repository, service).run(install="false", target="seen.json")
    assert [each["user"]["login"] for each in service.comments] == [BOT["login"], "robot"]


@pytest.mark.parametrize("reason", ["forbidden", "wrong token", "unreachable"])
def test_a_comment_that_can_not_be_written_is_a_warning(
    reason: str, repository: Path, service: Service
) -> None:
    done = job(repository, service)
    service.may_write = reason != "forbidden"
    service.token = "another" if reason == "wrong token" else service.token
    done.api = "http://127.0.0.1:9" if reason == "unreachable" else done.api
    done.run(install="false", target="healthy.json")
    assert done.failed is None and service.comments == []
    assert "::warning title=perfdoctor::the pull request could not be commented" in done.log


def test_wrong_usage_fails_and_leaves_no_report(repository: Path, service: Service) -> None:
    done = job(repository, service)
    done.run(install="false", target="none.json")
    assert done.failed == "Verdict" and done.outputs["run"] == {"exit-code": "2"}
    assert "none.json: no such file" in done.log
    assert (done.used, service.requests) == ({}, [])


def test_hostile_inputs_are_arguments_and_nothing_else(repository: Path, service: Service) -> None:
    done = job(repository, service)
    done.run(install="false", target='"; touch hacked; echo $(touch hacked) `touch hacked`.json')
    assert done.failed == "Verdict" and not (repository / "hacked").exists()


def test_a_benchmark_is_measured_and_reported(repository: Path, service: Service) -> None:
    (repository / "tiny.toml").write_text(
        '[model]\nname = "mlp"\nwidth = 8\n[data]\nexamples = 100\nimage_size = 8\n'
        f'folder = "{repository.parent}"\n[training]\nbatch_size = 2\n'
    )
    done = job(repository, service)
    done.run(install="false", command="bench", target="tiny.toml", budget="90")
    assert done.failed is None
    assert "### perfdoctor bench `tiny.toml`" in service.comments[0]["body"]
    assert "github/codeql-action/upload-sarif" not in done.used
    assert (Path(done.outputs["run"]["folder"]) / "report.xml").exists()


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, ["check"]),
        ({"command": "bench", "against": "git:main"}, ["bench", "--against", "git:main"]),
        ({"select": "etl", "threshold": "3%"}, ["check", "--select", "etl"]),
        ({"try-fixes": "false"}, ["check", "--no-try-fixes"]),
        ({"options": "--no-replay --budget '60'"}, ["check", "--no-replay", "--budget", "60"]),
        (
            {"target": "train.py", "arguments": "--name 'a b'"},
            ["check", "train.py", "--", "--name", "a b"],
        ),
        ({"module": "trainer"}, ["check", "-m", "trainer"]),
    ],
)
def test_inputs_become_options(inputs: dict[str, str], expected: list[str]) -> None:
    line = command(inputs, Path("r.json"))
    assert line[1:5] == ["--format", "json", "--output", "r.json"]
    assert [line[0], *line[5:]] == expected


def test_there_is_no_other_command() -> None:
    with pytest.raises(SystemExit, match="there is no command 'rm' here"):
        command({"command": "rm"}, Path("r.json"))


def test_every_option_is_an_input_and_every_input_is_used() -> None:
    code = (ROOT / "action" / "run.py").read_text() + (ROOT / "action.yml").read_text()
    for name in ACTION["inputs"]:
        assert f'"{name}"' in code or f"inputs.{name}" in code
    assert {each for known in OPTIONS.values() for each in known} <= set(ACTION["inputs"])


def test_the_extra_that_is_installed_exists() -> None:
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"].startswith("Install")]
    always, condition = step["env"]["EXTRAS"].split("${{")
    extras = [*always.split(","), *re.findall(r"',(\w+)'", condition)]
    assert "reference" in extras and len(extras) == 3
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in extras)
