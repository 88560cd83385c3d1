"""A jax that can't work is a finding of the `backend` check, within the time limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import perfdoctor

NO_DEVICE = """
import types
config = types.SimpleNamespace(values={})
def devices():
    raise RuntimeError("Unable to initialize backend: no device was found")
"""


def finding(tmp_path: Path, module: str) -> dict[str, Any]:
    """The only finding when this stands in jax's place."""
    (tmp_path / "jax.py").write_text(module)
    answer = perfdoctor(
        *("check", "--budget", "16", "--format", "json"),
        env={"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert answer.returncode == 1
    assert answer.stderr == ""
    report = json.loads(answer.stdout)
    others = {c["outcome"] for c in report["checks"] if c["id"] != "backend"}
    assert others == {"not-measured", "not-applicable"}  # the latter: there is no GPU
    [found] = report["findings"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise ImportError('libcudart.so.13: cannot open')", "can't be imported: ImportError"),
        ("import time; time.sleep(1e6)", "hangs when it is to be imported: no answer within"),
        (NO_DEVICE, "can't list its devices: RuntimeError: Unable to initialize backend"),
        ("import os; os.abort()", "can't be imported: the process ended with signal 6"),
    ],
)
def test_a_broken_jax_is_named(module: str, said: str, tmp_path: Path) -> None:
    found = finding(tmp_path, module)
    assert (found["check"], found["rank"], found["gain"]) == ("backend", 1, None)
    assert said in found["summary"]
    assert found["fix"]["how"]


def test_a_platform_that_is_not_there(tmp_path: Path) -> None:
    answer = perfdoctor(
        *("check", "--format", "json"),
        env={"JAX_PLATFORMS": "nosuch", "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert answer.returncode == 1
    [found] = json.loads(answer.stdout)["findings"]
    assert found["check"] == "backend"
    assert found["fix"]["how"] == "unset JAX_PLATFORMS"
    assert found["fix"]["change"] == {"env": {"JAX_PLATFORMS": None}}
