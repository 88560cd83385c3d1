"""`perfdoctor check train.py`: the user's own script, unchanged."""

import json
import uuid
from operator import attrgetter
from pathlib import Path

import pytest

from tests.cli.test_interruption import relatives
from tests.command import perfdoctor
from tests.long import LONG, long_but
from tests.scripts_that_fail import CASES, FOR_EVER, TRAINING, Case

IGNORED = "competing-processes,throttling"
"""What else runs on the machine while tests do is no matter of theirs."""

SHORT = {case.name for case in CASES} - {"prints megabytes", "removes its working directory"}


@pytest.mark.parametrize("case", long_but(SHORT, CASES, attrgetter("name")))
def test_whatever_a_script_does_ends_in_a_sentence(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / case.file).write_text(case.script)
    mark = uuid.uuid4().hex
    answer = perfdoctor(
        *("check", case.file, "--budget", "30", "--ignore", IGNORED),
        env={"PERFDOCTOR_TEST": mark},
        cwd=folder,
    )
    report = " ".join(answer.stdout.split())
    assert case.says in report
    assert answer.returncode == case.exit_code
    assert relatives(mark) == []


def test_its_output_goes_to_stderr_and_the_report_to_stdout(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv)\nsys.exit('no data')")
    answer = perfdoctor("check", "train.py", "--budget", "20", "--", "--epochs", "1", cwd=tmp_path)
    assert answer.stderr == "['train.py', '--epochs', '1']\nno data\n"
    assert answer.stdout.startswith("perfdoctor ")


def test_its_output_goes_to_a_file_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('loss 0.1')")
    options = ("--budget", "20", "--script-output", "log.txt")
    answer = perfdoctor("check", "train.py", *options, cwd=tmp_path)
    assert answer.stderr == ""
    assert (tmp_path / "log.txt").read_text() == "loss 0.1\n"


def test_a_module_runs_as_python_m_would(tmp_path: Path) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'a relative import'")
    (package / "__main__.py").write_text(
        "import sys\nfrom .names import NAME\nprint(NAME, __name__, __package__, sys.argv[1:])"
    )
    answer = perfdoctor("check", "-m", "trainer", "--budget", "20", "--", "-v", cwd=tmp_path)
    assert answer.stderr == "a relative import __main__ trainer ['-v']\n"


def test_the_line_that_waits_for_the_step_is_named(tmp_path: Path) -> None:
    program = (
        TRAINING
        + """
import gc
heap = [[index] for index in range(300_000)]
while True:
    params = step(params, x)
    gc.collect()  # to free memory
"""
    )
    (tmp_path / "train.py").write_text(program)
    options = ("--format", "json", "--ignore", IGNORED)
    answer = perfdoctor("check", "train.py", *options, cwd=tmp_path)
    report = json.loads(answer.stdout)
    assert report["target"] == {"kind": "script", "name": "train.py", "args": []}
    assert report["findings"], report
    first = report["findings"][0]
    line = program[: program.index("gc.collect()")].count("\n") + 1
    assert first["check"] == "gc"
    assert f"train.py:{line}" in first["summary"]
    assert first["gain"]["basis"] in ("replayed", "estimated")  # as the machine is quiet or not
    assert first["gain"]["low"] > 2
    assert answer.returncode == 1


@LONG
def test_a_setting_made_in_code_is_tried_against_the_code(tmp_path: Path) -> None:
    program = TRAINING.replace(
        "import jax, jax.numpy as jnp",
        'import jax, jax.numpy as jnp\njax.config.update("jax_disable_jit", True)',
    )
    (tmp_path / "train.py").write_text(program + FOR_EVER)
    options = ("--try-fixes", "--workdir-copy", "--format", "json", "--ignore", IGNORED)
    answer = perfdoctor("check", "train.py", *options, "--budget", "120", cwd=tmp_path)
    report = json.loads(answer.stdout)
    first = report["findings"][0]
    assert first["check"] == "debug-flags"
    assert first["fix"]["change"]["settings"] == {"jax_disable_jit": False}
    assert first["gain"]["basis"] == "measured"
    assert first["gain"]["low"] > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such.py",), "no_such.py: no such file; expected a Python script"),
        (("-m", "not a module"), "-m not a module: not the name of a module"),
        (("train.sh",), "train.sh can't be examined; expected"),
    ],
)
def test_what_is_no_script_is_wrong_usage(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    answer = perfdoctor("check", *arguments, cwd=tmp_path)
    assert answer.returncode == 2
    assert said in answer.stderr
