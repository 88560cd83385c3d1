import re
from itertools import pairwise
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.report.intervals import Axis, plot
from perfdoctor.schema.fix import Gain
from tests.report.reports import healthy, many, measured, no_backend

SPEEDS = st.floats(0.2, 500)


@st.composite
def gains(draw: st.DrawFn) -> Gain:
    low, speedup, high = sorted(draw(st.tuples(SPEEDS, SPEEDS, SPEEDS)))
    return Gain(speedup=speedup, low=low, high=high, basis=draw(BASES))


BASES: st.SearchStrategy[Literal["measured", "replayed", "estimated"]] = st.sampled_from(
    ["measured", "replayed", "estimated"]
)


@given(st.lists(gains(), min_size=1, max_size=5), st.integers(0, 60))
def test_an_interval_is_drawn_from_low_to_high_with_the_gain_in_it(
    known: list[Gain], columns: int
) -> None:
    axis = Axis(known, columns)
    for gain in known:
        line = axis.drawn(gain)
        dot = next(line.index(each) for each in "●○" if each in line)
        drawn = [n for n, mark in enumerate(line) if mark in "━╌●○"]
        assert drawn == list(range(axis.column(gain.low), axis.column(gain.high) + 1))
        assert dot == axis.column(gain.speedup)
        assert len(line) <= max(columns, 12)


@given(st.lists(gains(), min_size=1, max_size=5), st.integers(12, 60))
def test_more_stands_further_to_the_right(known: list[Gain], columns: int) -> None:
    axis = Axis(known, columns)
    for one, other in pairwise(sorted(known, key=lambda gain: gain.speedup)):
        assert axis.column(one.speedup) <= axis.column(other.speedup)
    assert 0 <= axis.column(1.0) < columns


@given(st.lists(gains(), min_size=1, max_size=5), st.integers(12, 60))
def test_marks_stand_where_they_belong(known: list[Gain], columns: int) -> None:
    axis = Axis(known, columns)
    for label in re.finditer(r"([\d.]+)×", axis.ticks()):
        assert label.start() == axis.column(float(label[1]))


def test_estimates_are_drawn_otherwise_than_measurements() -> None:
    estimated = Gain(speedup=2.0, low=1.5, high=3.0, basis="estimated")
    line = Axis([estimated], 40).drawn(estimated)
    assert "○" in line and "╌" in line and "━" not in line


def test_there_is_a_line_for_each_gain_and_one_for_all_together() -> None:
    names = [line.split()[0] for line in plot(measured(), 100, 30).plain.splitlines()]
    assert names == ["gain", "etl", "gc", "all"]
    alone = replace(measured(), combined_gain=None)
    assert len(plot(alone, 100, 30).plain.splitlines()) == 3
    assert len(plot(many(50), 100, 30).plain.splitlines()) == 32


def test_without_a_gain_nothing_is_drawn() -> None:
    assert not plot(healthy(), 100, 30)
    assert not plot(no_backend(), 100, 30)
