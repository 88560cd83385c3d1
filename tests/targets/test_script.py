import os
from pathlib import Path

import pytest

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.observation import Target
from perfdoctor.targets.script import launch, module, script


def test_a_script_is_started_as_python_starts_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.touch()
    target = script(file, ["--epochs", "1"])
    assert target == Target(kind="script", name=str(file), args=("--epochs", "1"))
    assert launch(target, None).command == (str(file), "--epochs", "1")


def test_a_module_is_started_as_python_starts_it() -> None:
    target = module("project.train", ["--epochs", "1"])
    assert target == Target(kind="script", name="-m project.train", args=("--epochs", "1"))
    assert launch(target, None).command == ("-m", "project.train", "--epochs", "1")


def test_it_gets_our_environment_folder_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOCTOR_TEST", "kept")
    started = launch(module("train", ()), 2)
    assert started.env == dict(os.environ)
    assert (started.folder, started.output) == (None, 2)
    assert launch(module("train", ()), None).output is None


def test_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    started = launch(module("train", ()), None)
    started.env["PERFDOCTOR_TEST"] = "1"
    assert "PERFDOCTOR_TEST" not in os.environ


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.py: no such file"):
        script(tmp_path / "absent.py", ())


def test_a_script_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.py"
    file.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(UsageError, match=r"train\.py can't be read"):
        script(file, ())


@pytest.mark.parametrize("name", ["", "train.", ".train", "a..b", "train.py/x", "a b", "-c", "1a"])
def test_what_is_no_name_of_a_module_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a module") as caught:
        module(name, ())
    assert len(str(caught.value).splitlines()) == 1
