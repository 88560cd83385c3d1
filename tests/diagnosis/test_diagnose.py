"""A loop that goes on is examined: what is found, and that nothing of it remains."""

import json
import subprocess
import sys
from typing import Any

import pytest

import perfdoctor
from perfdoctor.diagnosis import handle
from perfdoctor.saved import diagnosis
from tests.command import ROOT

LIMIT_S = 200.0
"""Generous: reached only where something is wrong."""


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of the loop of loops.py."""
    folder = tmp_path_factory.mktemp("examined")
    command = [sys.executable, "-m", "tests.diagnosis.loops", str(folder / "told.json")]
    answer = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (folder / "told.json").exists(), answer.stderr
    told: dict[str, Any] = json.loads((folder / "told.json").read_text())
    told["observation"] = folder / "observation.json"
    return told


def test_what_is_wrong_with_it_is_found(examined: dict[str, Any]) -> None:
    report = json.loads(examined["report"])
    assert report["findings"] and report["findings"][0]["check"] == "etl", report["checks"]
    assert report["steps"]["function"] == "update"
    outcomes = {each["id"]: each["outcome"] for each in report["checks"]}
    for name in ("dtype", "transfers", "workspaces", "host-sync", "network", "debug-flags"):
        assert outcomes[name] != "not-measured", name


def test_the_step_was_replayed(examined: dict[str, Any]) -> None:
    steps = json.loads(examined["report"])["steps"]
    assert steps["alone_ms"] is not None, steps["not_replayed"]
    assert steps["alone_ms"] < steps["untraced_ms"]


def test_the_loop_went_on(examined: dict[str, Any]) -> None:
    assert examined["done"] and examined["during"] > 100
    assert 0 < examined["loss"] < 1


def test_nothing_of_it_remains(examined: dict[str, Any]) -> None:
    assert examined["after"] == examined["before"]
    assert examined["children"] == 0


def test_a_second_one_at_the_same_time_is_refused_in_a_sentence(examined: dict[str, Any]) -> None:
    refused = json.loads(examined["refused"])
    summaries = {each["id"]: each["summary"] for each in refused["checks"]}
    assert summaries["etl"] == "the loop can't be examined: it is being examined already"


def test_what_is_saved_gives_the_same_findings(examined: dict[str, Any]) -> None:
    again = diagnosis(examined["observation"])
    findings = json.loads(examined["report"])["findings"]
    assert [each.check for each in again.findings] == [each["check"] for each in findings]
    assert examined["page"] == "<iframe"


def test_without_jax_it_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    found = perfdoctor.diagnose(show=False)
    assert found.done and "call diagnose() after `import jax`" in str(found.report())


def test_an_error_of_ours_is_a_sentence_and_the_next_one_can_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __init__(self, *arguments: Any) -> None:
            raise RuntimeError("out of luck")

    import jax  # noqa: F401

    monkeypatch.setattr(handle, "Course", Broken)
    for _ in range(2):
        with perfdoctor.diagnose(show=False) as found:
            steps = 3
        assert "RuntimeError: out of luck" in str(found.report()) and steps == 3


def test_an_error_in_the_block_is_the_blocks_own() -> None:
    import jax  # noqa: F401

    with pytest.raises(ZeroDivisionError), perfdoctor.diagnose(show=False) as found:
        _ = 1 / 0
    assert found.done
    assert handle.ONE_AT_A_TIME.acquire(blocking=False)
    handle.ONE_AT_A_TIME.release()


def test_the_line_that_loads_is_named(examined: dict[str, Any]) -> None:
    places = json.loads(examined["report"])["steps"]["places"]
    loading = [each for each in places if each["part"] == "etl"]
    assert loading and loading[0]["function"] == "batches", places
    assert loading[0]["place"].startswith("diagnosis/loops.py:")
