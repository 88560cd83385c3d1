"""Bad input ends in one sentence and exit code 2, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import ROOT, perfdoctor

SMALL = '[model]\nname = "mlp"\nwidth = 8\n[data]\nexamples = 500\nimage_size = 64\n'


def sentence(*arguments: str) -> str:
    """The one line that a refused command writes."""
    answer = perfdoctor(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    return answer.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[data]\nprefech = 3\n", "unknown key data.prefech; did you mean prefetch?"),
        ("[training]\nbatch_size = 0\n", "training.batch_size = 0; expected int >= 1"),
        ("[training]\nbatch_size = 1_000_000_000\n", "expected int <= 65536"),
        ("[training]\nlearning_rate = -0.1\n", "training.learning_rate = -0.1; expected"),
        ('[training]\nbatch_size = "64"\n', 'training.batch_size = "64"; expected int'),
        ('[model]\nname = "resnet"\n', "expected one of 'mlp', 'cnn', 'lstm', 'transformer'"),
        ("[training\n", "not TOML"),
    ],
)
def test_a_wrong_workload_names_file_and_key(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    message = sentence("check", str(file))
    assert str(file) in message
    assert said in message


def test_a_missing_file(tmp_path: Path) -> None:
    assert "no such file" in sentence("check", str(tmp_path / "none.toml"))


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in sentence("check", str(tmp_path))


def test_a_missing_script(tmp_path: Path) -> None:
    assert "no such file" in sentence("check", str(tmp_path / "train.py"))


def test_arguments_for_what_takes_none(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.touch()
    assert "takes no arguments" in sentence("check", str(file), "--", "--epochs", "1")


def test_a_module_with_no_name_of_one() -> None:
    assert "not the name of a module" in sentence("check", "-m", "train.py/x")


def test_an_observation_of_another_version(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    file.write_text('{"schema": "perfdoctor.observation/99"}')
    assert "expected 'perfdoctor.observation/1'" in sentence("check", str(file))


def test_a_truncated_observation(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    whole = (ROOT / "tests/observations/healthy.json").read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "cut off" in sentence("check", str(file))


def test_an_unknown_check(tmp_path: Path) -> None:
    assert "did you mean etl?" in sentence("check", "--select", "elt")


def test_an_output_in_no_folder(tmp_path: Path) -> None:
    assert "does not exist" in sentence("check", "--output", str(tmp_path / "no" / "report.json"))


def test_a_data_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    workload = tmp_path / "mine.toml"
    workload.write_text(SMALL.replace("[data]", f'[data]\nfolder = "{tmp_path}/file/below"'))
    assert "the data set cannot be written to" in sentence("check", str(workload))


def test_a_data_set_that_outgrows_the_disk_leaves_nothing(tmp_path: Path) -> None:
    workload = tmp_path / "mine.toml"
    workload.write_text(SMALL.replace("[data]", f'[data]\nfolder = "{tmp_path}/data"'))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        f"sys.argv = ['perfdoctor', 'check', {str(workload)!r}];"
        "from perfdoctor.cli import main; main()"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert "File too large" in answer.stderr
    assert list((tmp_path / "data").iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk; RLIMIT_FSIZE stands in for it above")
    try:
        workload = tmp_path / "mine.toml"
        workload.write_text(SMALL.replace("[data]", f'[data]\nfolder = "{disk}"'))
        assert "No space left on device" in sentence("check", str(workload))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
