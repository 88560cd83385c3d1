import pytest
from msgspec.structs import replace

from perfdoctor.report.html.curves import memory, sweep_plot
from perfdoctor.report.html.page import WIDE, Figure
from perfdoctor.report.html.plots import TOGETHER, WIDEST, distinct, gains_of, plots, step
from perfdoctor.report.html.timeline import timeline
from perfdoctor.schema.figures import MemoryCurve, TriedFix
from perfdoctor.schema.memory import MemorySample
from tests.report.html.pages import complete, of_recording, steps_of


def figures(**changes: object) -> dict[str, Figure]:
    return {each.title: each for each in plots(replace(complete(), **changes), WIDE)}


def test_there_is_a_plot_for_each_part_that_the_report_has() -> None:
    assert list(figures()) == [
        "Steps 294 to 313",
        "Where the time of a step goes",
        "What each fix gains",
        "Batch size against throughput",
        "Loader threads against throughput",
        "Memory over the traced window",
        "The step by layer",
    ]
    nothing = figures(
        timeline=None, steps=None, tried=(), findings=(), sweeps=(), memory=None, layers=()
    )
    assert nothing == {}


def test_the_parts_of_a_step_lie_end_to_end_beside_the_step_alone() -> None:
    steps = complete().steps
    assert steps is not None
    found = step(steps)
    bars = found.data["bars"]
    assert bars == ["this run", "this run, untraced", "replayed, host emulated", "the step alone"]
    own = [(begin, end) for bar, _, begin, end in found.data["parts"] if bar == bars[0]]
    assert [begin for begin, _ in own[1:]] == [end for _, end in own[:-1]]
    assert own[-1][1] == pytest.approx(steps["time_ms"], rel=1e-6)
    alone = [end for bar, _, _, end in found.data["parts"] if bar == "the step alone"]
    assert alone == [steps["alone_ms"]]
    assert "What it could be" in found.caption


def test_why_a_step_was_not_replayed_is_said() -> None:
    steps = of_recording("slow_etl").steps
    assert steps is not None
    found = step({**steps, "not_replayed": "its arguments are too large"})
    assert found.caption.endswith("The step alone was not measured: its arguments are too large.")


def test_gains_are_ranked_and_all_together_stand_last() -> None:
    gains = gains_of(complete(), WIDE)
    lows = [gain.low for label, _, gain in gains if label != TOGETHER]
    assert lows == sorted(lows, reverse=True)
    assert gains[-1][0] == TOGETHER


def test_a_gain_that_was_not_tried_is_drawn_as_an_estimate() -> None:
    (row,) = gains_of(replace(complete(), tried=()), WIDE)
    assert row[0].startswith("gc: ")
    assert row[2] == complete().findings[0].gain


def test_what_could_not_be_run_is_said() -> None:
    failed = TriedFix(check="etl", how="workers = 2", gain=None, failure="out of memory")
    found = figures(tried=(*complete().tried, failed))["What each fix gains"]
    assert "1 could not be run: workers = 2: out of memory." in found.caption


def test_labels_are_short_and_distinct() -> None:
    found = distinct(["a" * 100, "a" * 100, "b\nc", "b c"])
    assert len(set(found)) == 4
    assert max(map(len, found)) <= WIDEST + len(" (2)")
    assert found[2:] == ["b c", "b c (2)"]


def test_a_sweep_marks_where_the_run_is_and_the_knee() -> None:
    found = sweep_plot(complete().sweeps[0])
    assert [(each["x"], each["mark"]) for each in found.data["points"]] == [
        (16, "now"),
        (32, "knee"),
        (64, None),
    ]
    assert found.data["log"] and found.rows[1][3] == "the knee"


def test_memory_keeps_its_peak_however_long_it_is() -> None:
    samples = tuple(
        MemorySample(at_s=n / 10, rss_bytes=(999 if n == 777 else 100) * 2**20, array_bytes=2**20)
        for n in range(5000)
    )
    found = memory(MemoryCurve(samples=samples, available_bytes=2**30), WIDE)
    sizes = [each["y"] for each in found.data["points"] if each["series"] == "measured"]
    assert max(sizes) == 999 and len(sizes) <= WIDE.spans
    assert "samples between extremes are not drawn" in found.caption


def test_a_short_timeline_is_drawn_whole() -> None:
    seen = complete().timeline
    assert seen is not None
    found = timeline(seen, 1.0, WIDE)
    assert len(found.data["spans"]) == sum(len(lane.spans) for lane in seen.lanes)
    assert len(found.data["marks"]) == len(seen.marks)
    assert found.data["borders"] == list(seen.borders_ms)
    assert "not drawn" not in found.caption and "times as long" not in found.caption
    assert "1.3 times as long" in timeline(seen, 1.3, WIDE).caption


def test_a_long_timeline_keeps_its_extremes_and_says_what_it_leaves_out() -> None:
    found = timeline(steps_of(100_000), 1.0, WIDE)
    lanes, spans = found.data["lanes"], found.data["spans"]
    assert lanes == ["outliers", "main thread", "device"]
    assert len(spans) <= 2 * WIDE.spans
    assert max(spans, key=lambda each: each[3] - each[2])[1] == "gc"
    left_out = 200_000 - len(spans)
    assert f"{left_out:,} shorter spans are not drawn" in found.caption
    assert "of which every" in found.caption
    shares = {row[:2]: row[3] for row in found.rows}
    assert shares["device", "computing"] == "50.0%"


def test_lanes_of_one_name_stay_apart() -> None:
    seen = complete().timeline
    assert seen is not None
    twice = replace(seen, lanes=(*seen.lanes, seen.lanes[0]))
    assert timeline(twice, 1.0, WIDE).data["lanes"][-1] == "main thread (2)"
