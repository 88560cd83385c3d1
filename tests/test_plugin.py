"""A third party's checks, installed by pip into a fresh environment."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.recorded import FOLDER

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has perfdoctor, by a path file, and the plugin."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run(
        [str(interpreter), "-c", code], capture_output=True, text=True, check=True
    )
    lines = [*{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}, *editable()]
    (Path(answer.stdout.strip()) / "ours.pth").write_text("\n".join(lines) + "\n")
    copy = tmp_path_factory.mktemp("plugin") / "plugin"
    subprocess.run(["cp", "-r", str(PLUGIN), str(copy)], check=True)
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-deps", str(copy)]
    subprocess.run(command, check=True, timeout=300)
    return interpreter


def editable() -> list[str]:
    """Where an editable install of perfdoctor lies: path files are not followed from path files."""
    import perfdoctor
    import perfdoctor_checks

    places = [module.__file__ for module in (perfdoctor, perfdoctor_checks)]
    return [str(Path(place).parent.parent) for place in places if place]


def report(python: Path, *arguments: str) -> dict[str, Any]:
    """What a check of a recorded observation says there."""
    command = [str(python), "-m", "perfdoctor", "check", str(FOLDER / "slow_etl.json")]
    command += ["--format", "json", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.stderr == ""
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_the_environment_is_another_one(python: Path) -> None:
    assert python.resolve() != Path(sys.executable) or python.parent != Path(sys.executable).parent


def test_its_check_is_found_and_answers(python: Path) -> None:
    checks = {each["id"]: each for each in report(python)["checks"]}
    assert checks["old-python"]["outcome"] == "ok"


def test_what_cannot_be_used_is_reported_by_name_and_the_rest_goes_on(python: Path) -> None:
    seen = report(python)
    checks = {each["id"]: each for each in seen["checks"]}
    raises = checks["perfdoctor_example.raises"]
    assert raises["outcome"] == "crashed"
    assert "a_library_that_nobody_has" in raises["summary"]
    reuses = checks["perfdoctor_example.reuses"]
    assert reuses["outcome"] == "crashed"
    assert "'etl'" in reuses["summary"] and "perfdoctor_checks.etl" in reuses["summary"]
    assert [each["check"] for each in seen["findings"]] == ["etl"]


def test_it_is_listed_and_explained(python: Path) -> None:
    listed = subprocess.run(
        [str(python), "-m", "perfdoctor", "list"], capture_output=True, text=True, timeout=60
    )
    assert listed.returncode == 0
    assert "old-python" in listed.stdout
    assert "The interpreter" in listed.stdout
    explained = subprocess.run(
        [str(python), "-m", "perfdoctor", "explain", "old-python"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Faster CPython" in explained.stdout
