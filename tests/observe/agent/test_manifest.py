"""What a capture tells of the process."""

import os
from pathlib import Path

import pytest

from tests.observe.agent.test_capture import saved, training


def test_the_manifest_tells_of_the_process(tmp_path: Path) -> None:
    found = saved(training, tmp_path)
    assert found.settings == {"jax_enable_x64": False}
    assert found.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert (found.mesh, found.made, found.failures) == ((), (), {})
    assert found.saved_bytes == 16 + 32 + 8
    assert found.seconds > 0


def test_variables_that_the_code_sets_and_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--new")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MINE", "1")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    before = {**os.environ, "XLA_FLAGS": "--old", "MALLOC_ARENA_MAX": "1"}
    found = saved(training, tmp_path, env=before)
    assert found.env == {"XLA_FLAGS": "--new"}
    assert found.unset == ("MALLOC_ARENA_MAX",)
