import pytest

from perfdoctor.report.step import INKS, bar
from perfdoctor.schema.summary import StepSummary
from tests.report.reports import RECORDED, healthy, of_recorded


def steps(**parts_ms: float) -> StepSummary:
    """Of a healthy run, but for its parts."""
    known = healthy().steps
    assert known is not None
    changed = known.copy()
    changed["parts_ms"] = parts_ms
    return changed


@pytest.mark.parametrize("width", [60, 100, 200])
@pytest.mark.parametrize("name", RECORDED)
def test_the_lines_fit(name: str, width: int) -> None:
    seen = of_recorded(name).steps
    if seen is not None:
        assert max(map(len, bar(seen, width).plain.splitlines())) <= width


def test_the_bar_is_divided_as_the_step_is() -> None:
    first = bar(steps(device=3.0, etl=1.0), 100).plain.splitlines()[0]
    device, etl = first.count(INKS["device"][0]), first.count(INKS["etl"][0])
    assert device == pytest.approx(3 * etl, abs=2) and device + etl >= 40


def test_parts_are_named_the_longest_first_and_tiny_ones_not_at_all() -> None:
    text = bar(steps(device=1.0, etl=3.0, gc=0.001), 100).plain
    assert text.index("etl 3.00 ms 75%") < text.index("device 1.00 ms 25%")
    assert "gc 0.00" not in text


def test_a_part_of_another_version_is_drawn_too() -> None:
    assert "napping 1.00 ms 50%" in bar(steps(device=1.0, napping=1.0), 100).plain


def test_a_step_that_took_no_time_is_drawn() -> None:
    assert "0.00 ms" in bar(steps(device=0.0), 100).plain
