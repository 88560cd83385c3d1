"""What is instant stays instant: nothing heavy is imported for help, list and explain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"jax", "jaxlib", "numpy", "scipy"}
WITNESS = """
import atexit, json, sys
from pathlib import Path
atexit.register(lambda: Path(sys.argv.pop()).write_text(json.dumps(list(sys.modules))))
from perfdoctor.cli import main
last = sys.argv[-1]
sys.argv = ["perfdoctor", *sys.argv[1:-1]]
atexit.register(lambda: sys.argv.append(last))
main()
"""


def modules_after(arguments: list[str], tmp_path: Path) -> set[str]:
    """The modules that the doctor's own process has loaded when a command ends."""
    listing = tmp_path / "modules.json"
    subprocess.run(
        [sys.executable, "-c", WITNESS, *arguments, str(listing)],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        timeout=300,
    )
    return set(json.loads(listing.read_text()))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["check", "--help"], ["list"], ["explain", "etl"], ["--version"]]
)
def test_nothing_heavy_is_imported(arguments: list[str], tmp_path: Path) -> None:
    loaded = modules_after(arguments, tmp_path)
    assert "perfdoctor.cli" in loaded
    assert not HEAVY & loaded


@pytest.mark.parametrize("arguments", [["list"], ["explain", "etl"]])
def test_a_list_and_an_explanation_need_no_rich(arguments: list[str], tmp_path: Path) -> None:
    loaded = modules_after(arguments, tmp_path)
    assert not {"rich.console", "rich.table"} & loaded


def test_a_whole_check_with_a_trial_never_imports_jax(tmp_path: Path) -> None:
    workload = tmp_path / "tiny.toml"
    workload.write_text(
        '[model]\nname = "mlp"\nwidth = 8\n[data]\nexamples = 100\nimage_size = 8\n'
        "[training]\nbatch_size = 2\n"
    )
    loaded = modules_after(["check", str(workload), "--budget", "45"], tmp_path)
    assert {"perfdoctor.doctor", "perfdoctor.trials.pair"} <= loaded
    assert not {"jax", "jaxlib"} & loaded
