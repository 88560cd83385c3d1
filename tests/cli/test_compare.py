"""`perfdoctor compare`: the command, as a user calls it."""

from pathlib import Path

import msgspec
import pytest

from tests.bench.made import benchmark, launch
from tests.command import perfdoctor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With three results of one program: twice as fast as ever, and slower by far."""
    for name, step_ms in (("a", 5.0), ("same", 5.0), ("slow", 15.0)):
        found = benchmark(*(launch(mean_ms=step_ms + n / 100) for n in range(5)))
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(found))
    return tmp_path


def test_a_large_slowdown_is_told(folder: Path) -> None:
    answer = perfdoctor("compare", "a.json", "slow.json", cwd=folder)
    assert answer.returncode == 1
    assert "regressed against a.json" in answer.stdout


def test_what_is_open_is_no_verdict_unless_that_is_allowed(folder: Path) -> None:
    assert perfdoctor("compare", "a.json", "same.json", cwd=folder).returncode == 3
    allowed = perfdoctor("compare", "a.json", "same.json", "--on-inconclusive", "warn", cwd=folder)
    assert allowed.returncode == 0
    assert "inconclusive" in allowed.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file; `perfdoctor bench --save"),
        (b"", "not JSON, or cut off"),
        (b'{"schema": "perfdoctor.benchmark/1", "target"', "not JSON, or cut off"),
        (b"[1]", "no benchmark: it has no schema"),
        (b'{"schema": "perfdoctor.report/1"}', "expected 'perfdoctor.benchmark/1'"),
        (b'{"schema": "perfdoctor.benchmark/1"}', "no valid benchmark"),
    ],
)
def test_a_baseline_that_is_none_is_named(content: bytes | None, said: str, folder: Path) -> None:
    if content is not None:
        (folder / "bad.json").write_bytes(content)
    answer = perfdoctor("compare", "bad.json", "a.json", cwd=folder)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert "bad.json" in answer.stderr and said in answer.stderr
