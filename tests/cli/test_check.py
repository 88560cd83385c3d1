"""`perfdoctor check` from end to end, on the sample workloads."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.command import SAMPLES, perfdoctor
from tests.long import LONG, long_but
from tests.recorded import saved

WORKLOADS = sorted(SAMPLES.glob("*.toml"))
TRIED = ("healthy", "slow_etl", "tiny_batch", "missing_jit")
"""Samples whose trials are made here; those of all are in tests/clinic, with saved results."""
SEEN = (
    "wrong_platform",
    "double_precision",
    "gc_pressure",
    "host_callback",
    "memory_leak",
    "recompilation",
    "shared_model",
    "transfers",
)
"""Samples whose cause is seen without a trial."""


def report_on(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a check."""
    answer = perfdoctor("check", *arguments, "--format", "json")
    assert answer.stderr == ""
    return answer.returncode, json.loads(answer.stdout)


@pytest.mark.parametrize("name", long_but(["slow_etl"], TRIED))
def test_a_sample_sets_off_what_it_is_made_for(name: str, tmp_path: Path) -> None:
    workload = SAMPLES / f"{name}.toml"
    saved = tmp_path / "observation.json"
    code, report = report_on(str(workload), "--save-observation", str(saved))
    expected = tomllib.loads(workload.read_text())["expect"]
    # competing-processes speaks of what else this machine does, whatever is examined
    found = [f for f in report["findings"] if f["check"] != "competing-processes"]
    assert [each["check"] for each in found] == expected
    assert code == bool(report["findings"])
    for each in found:
        assert each["gain"]["basis"] == "measured"
        assert each["gain"]["low"] > 1
    again_code, again = report_on(str(saved))
    assert again_code == code
    assert again["findings"] == report["findings"]
    assert again["combined_gain"] == report["combined_gain"]
    assert again["checks"] == report["checks"]


@pytest.mark.parametrize("name", long_but(["double_precision", "shared_model"], SEEN))
def test_the_cause_of_a_sample_is_seen_before_anything_is_tried(name: str) -> None:
    workload = SAMPLES / f"{name}.toml"
    _, report = report_on(str(workload), "--no-try-fixes")
    outcomes = {each["id"]: each["outcome"] for each in report["checks"]}
    for expected in tomllib.loads(workload.read_text())["expect"]:
        assert outcomes[expected] in ("issue", "hint")


def test_every_sample_says_what_it_expects() -> None:
    assert len(WORKLOADS) >= 20
    for workload in WORKLOADS:
        assert "expect" in tomllib.loads(workload.read_text())


@LONG
def test_two_faults_are_ranked_and_measured_together(tmp_path: Path) -> None:
    workload = tmp_path / "both.toml"
    slow_etl = (SAMPLES / "slow_etl.toml").read_text()
    workload.write_text(slow_etl + "[process]\nlive_objects = 1_000_000\ngc_collect_every = 5\n")
    code, report = report_on(str(workload), "--budget", "600")
    assert code == 1
    gains = [each["gain"]["low"] for each in report["findings"]]
    assert {each["check"] for each in report["findings"]} >= {"etl", "gc"}
    assert [each["rank"] for each in report["findings"]] == list(range(1, len(gains) + 1))
    assert gains == sorted(gains, reverse=True)
    assert report["combined_gain"]["speedup"] > max(gains)


def test_exit_zero_and_output(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    observed = SAMPLES.parent / "tests" / "observations" / "slow_etl.json"
    answer = perfdoctor("check", str(observed), "--exit-zero", "--output", str(file))
    assert answer.returncode == 0
    assert answer.stdout == ""
    assert "etl" in file.read_text()


def test_select_and_ignore() -> None:
    observed = str(SAMPLES.parent / "tests" / "observations" / "slow_etl.json")
    assert [c["id"] for c in report_on(observed, "--select", "gc,dtype")[1]["checks"]] == [
        "dtype",
        "gc",
    ]
    assert report_on(observed, "--ignore", "etl")[0] == 0


def test_min_gain_decides_what_is_an_issue() -> None:
    observed = str(SAMPLES.parent / "tests" / "observations" / "slow_etl.json")
    assert report_on(observed, "--min-gain", "5%")[0] == 1
    assert report_on(observed, "--min-gain", "900%")[0] == 0


def test_a_run_that_fails_is_no_verdict(tmp_path: Path) -> None:
    workload = tmp_path / "short.toml"
    workload.write_text(
        '[model]\nname = "mlp"\nwidth = 8\n[data]\nexamples = 100\nimage_size = 8\n'
        f'folder = "{tmp_path}"\n[training]\nsteps = 3\n'
    )
    code, report = report_on(str(workload))
    assert code == 3
    assert report["findings"] == []
    steps = next(c for c in report["checks"] if c["id"] == "etl")
    assert steps["outcome"] == "not-measured"
    assert "give it more steps" in steps["summary"]


@pytest.fixture
def with_broken_check(tmp_path: Path) -> dict[str, str]:
    """An environment that has one more check, which can't be imported."""
    (tmp_path / "pd_broken.py").write_text("1 / 0\n")
    info = tmp_path / "pd_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pd_broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perfdoctor.checks]\nthird = pd_broken\n")
    return {"PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("healthy", (), 3),
        ("healthy", ("--exit-zero",), 3),
        ("healthy", ("--ignore", "pd_broken"), 0),
        ("slow_etl", (), 1),
        ("slow_etl", ("--exit-zero",), 0),
    ],
)
def test_a_check_that_crashed_leaves_no_verdict_if_nothing_else_is_found(
    name: str, options: tuple[str, ...], code: int, with_broken_check: dict[str, str]
) -> None:
    answer = perfdoctor("check", str(saved(name)), *options, env=with_broken_check)
    assert answer.returncode == code
    assert ("pd_broken crashed" in answer.stdout) == (code == 3)


def test_an_installation_without_checks_is_no_verdict() -> None:
    program = (
        "import sys, importlib.metadata as metadata\n"
        "metadata.entry_points = lambda **_: []\n"
        f"sys.argv = ['perfdoctor', 'check', {str(saved('healthy'))!r}]\n"
        "from perfdoctor.cli import main\n"
        "main()\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.startswith("perfdoctor: no checks are installed: ")
    assert answer.stderr.count("\n") == 1
