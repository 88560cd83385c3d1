from pathlib import Path

import pytest

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.workload import Workload
from perfdoctor.targets.resolve import resolve
from tests.recorded import FOLDER, recorded

RAW = (FOLDER / "healthy.json").read_bytes()
HEADER = b'{"schema":"perfdoctor.observation/1",'


def refusal(name: str | Path) -> str:
    """The message with which a target is refused: one line that begins with its name."""
    with pytest.raises(UsageError) as caught:
        resolve(str(name))
    message = str(caught.value)
    assert message.splitlines() == [message]
    assert message.startswith(str(name))
    return message


def observation(folder: Path, raw: bytes) -> Path:
    file = folder / "observation.json"
    file.write_bytes(raw)
    return file


def test_no_target_is_the_reference_loop() -> None:
    assert resolve(None) == Target(kind="reference", name="reference", workload=Workload())


def test_a_workload_file_is_a_target(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text("[training]\nbatch_size = 3\n")
    found = resolve(str(file))
    assert isinstance(found, Target)
    assert (found.kind, found.name) == ("workload", str(file))
    assert found.workload is not None
    assert found.workload.training.batch_size == 3


def test_a_saved_observation_is_read_back() -> None:
    assert resolve(str(FOLDER / "healthy.json")) == recorded("healthy")


def test_a_script_is_a_target_with_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.touch()
    found = resolve(str(file), None, ["--epochs", "1"])
    assert found == Target(kind="script", name=str(file), args=("--epochs", "1"))


def test_a_module_is_a_target_and_what_follows_are_its_arguments() -> None:
    assert resolve(None, "project.train") == Target(kind="script", name="-m project.train")
    found = resolve("config.toml", "project.train", ["--epochs", "1"])
    assert isinstance(found, Target)
    assert found.args == ("config.toml", "--epochs", "1")


def test_only_a_script_takes_arguments(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.touch()
    with pytest.raises(UsageError, match="takes no arguments"):
        resolve(str(file), None, ["--epochs"])


@pytest.mark.parametrize("name", ["folder", "folder.toml", "folder.json", "folder.py"])
def test_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert "directory" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["absent.toml", "absent.json", "absent.py"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    assert "no such file" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["w.yaml", "w.txt", "w"])
def test_another_suffix_is_refused_with_those_known(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    message = refusal(tmp_path / name)
    assert ".toml" in message
    assert ".json" in message


def test_another_version_of_the_schema_is_named(tmp_path: Path) -> None:
    raw = RAW.replace(b"perfdoctor.observation/1", b"perfdoctor.observation/2")
    message = refusal(observation(tmp_path, raw))
    assert "perfdoctor.observation/2" in message
    assert "perfdoctor.observation/1" in message


@pytest.mark.parametrize("raw", [b"[1]", b"3", b"null", b'"text"', b"{}", b'{"schema":null}'])
def test_json_that_is_no_observation(tmp_path: Path, raw: bytes) -> None:
    assert "no observation" in refusal(observation(tmp_path, raw))


@pytest.mark.parametrize("raw", [b"", b"\0" * 50, b"\xff\xfe", b"schema: 1", RAW + b"}"])
def test_what_is_not_json(tmp_path: Path, raw: bytes) -> None:
    assert "not JSON" in refusal(observation(tmp_path, raw))


@pytest.mark.parametrize("end", [*range(0, len(RAW), 97), len(RAW) - 2, len(RAW) - 1])
def test_an_observation_that_is_cut_off_is_refused(tmp_path: Path, end: int) -> None:
    refusal(observation(tmp_path, RAW[:end].rstrip()))


def test_an_invalid_value_is_named_by_its_place(tmp_path: Path) -> None:
    raw = RAW.replace(b'"logical_cores":2', b'"logical_cores":"two"')
    assert "host.logical_cores" in refusal(observation(tmp_path, raw))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    assert "target" in refusal(
        observation(tmp_path, HEADER + b'"perfdoctor":"0.1.0","created":"2026-01-01T00:00:00Z"}')
    )


@pytest.mark.parametrize(
    "raw",
    [
        RAW.replace(b'"cpu_model":"', b'"cpu_model":"\xff\xfe'),
        HEADER + b'"x":' + b"[" * 100_000,
        RAW.replace(b'"logical_cores":2', b'"logical_cores":1e999'),
    ],
    ids=["not UTF-8 inside", "nested too deep", "number out of range"],
)
def test_damage_behind_a_sound_header_is_refused(tmp_path: Path, raw: bytes) -> None:
    refusal(observation(tmp_path, raw))


def test_unknown_keys_of_a_newer_perfdoctor_are_passed_over(tmp_path: Path) -> None:
    file = observation(tmp_path, RAW.replace(b"{", b'{"of_tomorrow":[1],', 1))
    found = resolve(str(file))
    assert isinstance(found, Observation)
    assert found == recorded("healthy")
