"""`perfdoctor list`, `explain` and `env`."""

import json
import subprocess
import sys

from tests.command import perfdoctor


def test_list_names_each_check_with_its_title() -> None:
    answer = perfdoctor("list")
    assert answer.returncode == 0
    (line,) = [each for each in answer.stdout.splitlines() if each.startswith("etl ")]
    assert "The step waits for its data." in line  # one line a check, where nobody looks at it


def test_explain_prints_the_documentation() -> None:
    answer = perfdoctor("explain", "gc")
    assert answer.returncode == 0
    assert "How to fix" in answer.stdout


def test_explain_of_an_unknown_check_names_the_nearest() -> None:
    answer = perfdoctor("explain", "batchsize")
    assert answer.returncode == 2
    assert answer.stderr == "perfdoctor: there is no check 'batchsize'; did you mean batch-size?\n"


def test_env_shows_the_machine_in_words() -> None:
    answer = perfdoctor("env")
    assert answer.returncode == 0
    assert "cores" in answer.stdout and "jaxlib" in answer.stdout


def test_env_as_json_has_the_backend() -> None:
    machine = json.loads(perfdoctor("env", "--format", "json").stdout)
    assert machine["host"]["usable_cores"] > 0
    assert machine["backend"]["devices"][0]["kind"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m perfdoctor explain etl | true"
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert answer.stderr == ""
