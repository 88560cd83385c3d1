import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from perfdoctor.bench import pipeline
from perfdoctor.bench.launches import Side
from perfdoctor.bench.pipeline import ENOUGH, MOST, Request, is_narrow, launched, save
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.benchmark import Benchmark, LaunchRecord
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import OutOfTime, WorkerEnded
from tests.bench.made import benchmark, launch

HERE = Launch(("train.py",), dict(os.environ), output=1)
SIDE = Side(HERE, "step")
FAR_S = 1000.0


def measuring(
    monkeypatch: pytest.MonkeyPatch, *answers: LaunchRecord | WorkerEnded, takes_s: float = 1.0
) -> Iterator[LaunchRecord]:
    """What comes of launches that go so, within FAR_S of a clock of their own."""
    clock, coming = SimpleNamespace(now=0.0), iter(answers)

    def answer(groups: ProcessGroups, side: Side, until: float) -> LaunchRecord:
        clock.now += takes_s
        found = next(coming)
        if isinstance(found, WorkerEnded):
            raise found
        return found

    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(pipeline, "measured", answer)
    with ProcessGroups() as groups:
        yield from launched(SIDE, groups, FAR_S, lambda text: None)


def test_launches_end_when_their_mean_is_known_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(measuring(monkeypatch, *[launch(mean_ms=5.0)] * 20))) == ENOUGH


def test_launches_that_scatter_end_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    scattered = [launch(mean_ms=5.0 + number % 2) for number in range(20)]
    assert len(list(measuring(monkeypatch, *scattered))) == MOST


def test_no_launch_begins_that_could_not_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(measuring(monkeypatch, *[launch()] * 20, takes_s=0.4 * FAR_S))
    assert len(found) == 2


def test_a_later_launch_that_fails_leaves_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list(measuring(monkeypatch, launch(), launch(), OutOfTime("the budget ended")))
    assert len(found) == 2


def test_a_first_launch_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NothingMeasured, match="could not be timed: no data"):
        list(measuring(monkeypatch, WorkerEnded("no data")))


def test_few_launches_are_never_narrow() -> None:
    assert not is_narrow([])
    assert not is_narrow([launch()] * (ENOUGH - 1))
    assert is_narrow([launch()] * ENOUGH)
    assert not is_narrow([launch(mean_ms=5 * math.exp(0.1 * n)) for n in range(ENOUGH)])


def test_numbers_are_kept_where_the_user_wants_them(tmp_path: Path) -> None:
    found = benchmark(launch())
    save(found, Request())
    save(found, Request(save=tmp_path / "base.json"))
    assert [each.name for each in tmp_path.iterdir()] == ["base.json"]
    kept = (tmp_path / "base.json").read_bytes()
    assert msgspec.json.decode(kept, type=Benchmark) == found


@pytest.mark.parametrize(
    ("request_", "runs"),
    [(Request(), False), (Request("mlp.toml"), False), (Request("train.py"), True)],
)
def test_what_is_a_users_program(request_: Request, runs: bool) -> None:
    assert request_.runs_script is runs
