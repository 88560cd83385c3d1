from msgspec.structs import replace

from perfdoctor.report.benchmark.html import render
from perfdoctor.report.benchmark.plots import history, launches, levels, pairs, plots
from perfdoctor.report.formats import rendered
from perfdoctor.report.html.page import LARGEST_BYTES, WIDE
from perfdoctor.schema.benchmark import Comparison, LevelChange
from tests.bench.made import benchmark, launch
from tests.report.benchmark.benchmarks import BY_PAIR, CONTROLS, VALUES, compared, trend
from tests.report.html.pages import HOSTILE
from tests.report.html.test_page import Outline


def comparison() -> Comparison:
    found = compared().comparison
    assert found is not None
    return found


def test_the_page_tells_verdict_numbers_and_causes() -> None:
    text = Outline(rendered(compared(), "html")).text
    assert "regressed against git:main" in text
    assert "step time" in text
    assert "FLOPs a step: 100 to 112" in text
    assert "host-sync: the step is waited for at train.py:84" in text
    assert "a busy machine" in text


def test_pairs_their_interval_and_the_threshold_are_drawn_above_the_noise() -> None:
    found = pairs(comparison(), WIDE)
    assert found.data["rules"] == [0.0, 0.05]
    step, noise = found.data["rows"][:2]
    assert step["points"] == list(BY_PAIR) and noise["points"] == list(CONTROLS)
    assert (step["low"], step["value"], step["high"]) == (0.05, 0.08, 0.11)
    assert (step["group"], noise["group"]) == ("gc", "estimated")


def test_saved_numbers_have_no_pairs() -> None:
    bare = tuple(replace(each, by_pair=(), control_by_pair=()) for each in comparison().metrics)
    found = pairs(replace(comparison(), how="saved numbers", metrics=bare), WIDE)
    assert [row["points"] for row in found.data["rows"]] == [[], []]
    assert "two saved results" in found.caption


def test_a_history_has_levels_and_where_they_change() -> None:
    found = history(trend(), {each.name: each for each in compared().metrics}, WIDE)
    assert [each["y"] for each in found.data["points"]] == list(VALUES)
    assert [(each["from"], each["to"]) for each in found.data["levels"]] == [(1, 12), (13, 20)]
    assert [each["x"] for each in found.data["changes"]] == [13]
    assert found.rows == (("2026-01-13T00:00:00Z", f"{12:040x}"[:10], "+20.0%"),)


def test_a_level_is_the_median_of_its_results() -> None:
    one = replace(trend(), values=(1.0, 4.0), changes=(LevelChange(index=1, ratio=4.0),))
    assert [each["y"] for each in levels(one, "ms")] == [1.0, 4.0]
    assert levels(replace(one, values=(1.0, 9.0, 2.0), changes=()), "ms")[0]["y"] == 2.0


def test_a_trend_that_is_not_whole_is_not_drawn() -> None:
    for odd in ({"created": ()}, {"values": ()}, {"changes": (LevelChange(index=99, ratio=2.0),)}):
        found = plots(replace(compared(), trends=(replace(trend(), **odd),)), WIDE)
        assert not any(each.title.startswith("History") for each in found)
    assert any(each.title.startswith("History") for each in plots(compared(), WIDE))


def test_a_long_history_keeps_its_extremes() -> None:
    values = tuple(99.0 if n == 4321 else 5.0 for n in range(10_000))
    long = replace(trend(), values=values, created=("2026",) * 10_000, commits=(None,) * 10_000)
    found = history(long, {}, WIDE)
    assert max(each["y"] for each in found.data["points"]) == 99.0
    assert "results between extremes are not drawn" in found.caption


def test_each_launch_is_a_line_of_its_own() -> None:
    found = launches(compared().launches, WIDE)
    assert [each["group"] for each in found.data["points"]] == ["1"] * 3 + ["2"] * 3
    many = launches((launch(),) * 30, WIDE)
    assert "The first 20 of 30." in many.caption


def test_without_comparison_or_history_the_numbers_stand_alone() -> None:
    text = Outline(render(benchmark(launch()))).text
    assert "1 fresh launch, no comparison" in text


def test_hostile_names_are_text_and_the_page_stays_small() -> None:
    found = compared()
    target = replace(found.target, name=HOSTILE)
    told = replace(comparison(), against=HOSTILE * 50_000, causes=(HOSTILE,) * 2000)
    text = render(replace(found, target=target, comparison=told, warnings=(HOSTILE,)))
    page = Outline(text)
    assert len(page.scripts) == 3 and not any(tag == "img" for tag, _ in page.elements)
    assert len(text.encode()) <= LARGEST_BYTES
