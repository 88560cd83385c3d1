import tomllib
from pathlib import Path

import pytest

from perfdoctor.schema.errors import UsageError
from perfdoctor.targets import samples as module
from perfdoctor.targets.samples import sample, samples
from perfdoctor.targets.workload import read
from tests.command import ROOT, SAMPLES, perfdoctor


def test_the_samples_are_those_of_the_repository() -> None:
    assert set(samples().values()) == set(SAMPLES.glob("*.toml"))
    for file in samples().values():
        read(file)


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no sample 'slow_etk'; did you mean slow_etl\?"):
        sample("slow_etk")


def test_where_none_were_installed_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLDERS", (tmp_path / "nowhere",))
    assert samples() == {}


def test_the_wheel_takes_them_along() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {
        SAMPLES.name: f"perfdoctor/{module.FOLDERS[0].name}"
    }


@pytest.mark.parametrize("command", ["check", "bench"])
def test_a_sample_takes_the_place_of_a_target(command: str) -> None:
    both = perfdoctor(command, "train.py", "--sample", "slow_etl")
    assert both.returncode == 2
    assert both.stderr == (
        "perfdoctor: --sample slow_etl takes the place of a target; leave out train.py\n"
    )
    wrong = perfdoctor(command, "--sample", "slow")
    assert wrong.returncode == 2
    assert "there is no sample 'slow'; did you mean slow_etl?" in wrong.stderr
