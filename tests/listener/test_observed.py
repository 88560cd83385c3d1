"""What was seen by listening, as an Observation and a report."""

import gc
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor import PerformanceListener
from perfdoctor.saved import diagnosis
from perfdoctor.schema.observation import Observation
from perfdoctor.targets.resolve import read_observation
from tests.command import perfdoctor

BATCH = np.zeros((4, 2))


def loop(load_s: float = 0.0, work_s: float = 0.0, *, collects: bool = False) -> Observation:
    """Some iterations of it."""

    def batches() -> object:
        for _ in range(40):
            time.sleep(load_s)
            yield BATCH

    with PerformanceListener(every=5, callback=lambda line: None) as listener:
        for _ in listener.batches(batches()):
            time.sleep(work_s)
            if collects:
                gc.collect()
            listener.step(score=jnp.float32(1.0))
        return listener.observation()


def test_slow_loading_is_found_and_survives_saving(tmp_path: Path) -> None:
    def batches() -> object:
        for _ in range(40):
            time.sleep(0.01)
            yield BATCH

    with PerformanceListener(every=5, callback=lambda line: None) as listener:
        for _ in listener.batches(batches()):
            time.sleep(0.002)
            listener.step(score=jnp.float32(1.0))
        report = listener.report()
        listener.save(tmp_path / "observation.json")
    found = report.data.findings[0]
    assert found.check == "etl" and found.gain is not None and found.gain.basis == "estimated"
    assert found.gain.speedup > 2
    assert "the device is idle" in found.summary and "etl" in str(report)
    answer = perfdoctor("check", "observation.json", cwd=tmp_path)
    assert answer.returncode == 1 and "etl" in answer.stdout
    again = diagnosis(tmp_path / "observation.json")
    assert [each.check for each in again.findings] == [each.check for each in report.data.findings]
    assert read_observation(tmp_path / "observation.json").iterations is not None


def test_collections_are_found_with_their_line() -> None:
    alive = [[n] for n in range(300_000)]
    seen = loop(work_s=0.001, collects=True)
    assert alive
    from perfdoctor.diagnosis.shown import shown

    found = {each.check: each for each in shown(seen).data.findings}
    assert "gc.collect() at listener/test_observed.py" in found["gc"].summary


def test_a_healthy_loop_has_no_finding_and_says_what_was_not_seen() -> None:
    from perfdoctor.diagnosis.shown import shown

    seen = loop(work_s=0.005)
    report = shown(seen).data
    outcomes = {each.id: each for each in report.checks}
    for name in ("etl", "gc"):  # on a busy machine a batch may be waited for
        assert outcomes[name].outcome in ("ok", "hint")
    for name in ("host-sync", "transfers", "workspaces", "dtype", "batch-size"):
        assert outcomes[name].outcome == "not-measured"
        assert "listen" in outcomes[name].summary
    assert outcomes["debug-flags"].outcome != "not-measured"


def test_before_a_line_was_told_there_is_a_report_too() -> None:
    with PerformanceListener() as listener:
        report = listener.report()
    assert (
        "no iteration was told of yet"
        in {each.id: each for each in report.data.checks}["etl"].summary
    )


def test_in_a_notebook_it_is_html() -> None:
    pytest.importorskip("jinja2")
    with PerformanceListener(every=1, callback=lambda line: None) as listener:
        listener.step()
        listener.step()
        page = listener._repr_html_()
    assert page.startswith("<iframe") and "srcdoc=" in page and "perfdoctor" in page


def test_a_diagnosis_that_came_to_nothing_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax")
    with PerformanceListener(every=1, callback=lambda line: None) as listener:
        assert listener.diagnose(show=False).done
        monkeypatch.undo()
        for _ in range(3):
            listener.step()
        assert listener.observation().iterations is not None
