from pathlib import Path
from types import SimpleNamespace

import pytest

from perfdoctor.observe.digest.timeline import (
    count_dispatches,
    dispatches_of,
    profile_start_ns,
    read,
    span,
    waits_of,
)

EVENTS = [
    ("PjitFunction(step)", 10, 20),
    ("PjitFunction(step)", 12, 18),
    ("PjitFunction(step)", 30, 40),
    ("PjitFunction(<lambda>)", 50, 55),
    ("np.asarray(jax.Array)", 60, 90),
    ("BlockUntilReady", 80, 95),
    ("Await", 99, 100),
    ("ParseArguments", 10, 11),
]


def plane(name: str, **stats: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, stats=list(stats.items()))


def test_the_profile_start_is_found_by_its_plane() -> None:
    planes = [plane("/host:CPU"), plane("Task Environment", profile_start_time=17, other=3)]
    assert profile_start_ns(planes) == 17


def test_a_profile_without_a_start_counts_from_zero() -> None:
    assert profile_start_ns([plane("/host:CPU")]) == 0


def test_span_is_laid_beside_the_clock() -> None:
    start = 1_795_000_000_000_000_000
    event = SimpleNamespace(start_ns=5.4, duration_ns=2.2)
    assert span(event, start) == (start + 5, start + 7)


def test_dispatches_are_counted() -> None:
    assert count_dispatches(EVENTS) == 4
    assert count_dispatches([]) == 0


def test_dispatches_by_function() -> None:
    found = dispatches_of(EVENTS)
    assert set(found) == {"step", "<lambda>"}
    assert found["<lambda>"].tolist() == [[50, 55]]


def test_a_call_listed_twice_is_counted_once() -> None:
    assert dispatches_of(EVENTS)["step"].tolist() == [[10, 20], [30, 40]]


def test_waits_that_overlap_are_one() -> None:
    assert waits_of(EVENTS).tolist() == [[60, 95], [99, 100]]


def test_no_waits_where_the_host_never_waits() -> None:
    assert waits_of(EVENTS[:4]).shape == (0, 2)


@pytest.mark.parametrize("name", ["trace", "absent"])
def test_no_timeline_without_a_profile(tmp_path: Path, name: str) -> None:
    (tmp_path / "trace").mkdir()
    assert read(tmp_path / name) is None
