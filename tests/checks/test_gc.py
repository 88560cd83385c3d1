import re

import pytest
from msgspec.structs import replace

from perfdoctor import needed
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Collection
from perfdoctor.schema.workload import Process
from perfdoctor_checks import gc
from tests.checks.soundness import assert_sound
from tests.recorded import recorded


def pressed(process: Process) -> Observation:
    """The run that collects, as if it had these settings."""
    seen = recorded("gc_pressure")
    assert seen.target.workload is not None
    workload = replace(seen.target.workload, process=process)
    return replace(seen, target=replace(seen.target, workload=workload))


@pytest.mark.parametrize("name", ["healthy", "slow_etl", "double_precision", "tiny_batch"])
def test_is_silent_where_collections_cost_nothing(name: str) -> None:
    assert gc.check(recorded(name)).kind == "ok"


def test_finds_collections_that_stop_the_training() -> None:
    seen = recorded("gc_pressure")
    outcome = gc.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)


def test_names_the_line_that_collects_and_how_often() -> None:
    summary = gc.check(recorded("gc_pressure")).summary
    assert re.match(r"a full collection every 5\.\d steps, \d+ ms each, ", summary)
    assert "from gc.collect() at reference/loop.py:" in summary
    assert re.search(r"1 1\d\d \d{3} live objects", summary.replace("\N{NO-BREAK SPACE}", " "))


def test_where_objects_were_not_counted_nothing_is_said_of_them() -> None:
    seen = recorded("gc_pressure")
    assert seen.garbage is not None
    outcome = gc.check(replace(seen, garbage=replace(seen.garbage, live_objects=0)))
    assert outcome.kind == "issue"
    assert "objects" not in outcome.summary + "".join(each.name for each in outcome.evidence)


def test_a_collection_of_the_allocators_own_is_called_so() -> None:
    seen = recorded("gc_pressure")
    assert seen.garbage is not None
    young = replace(seen.garbage.collections[0], explicit=False, generation=0)
    automatic = replace(seen, garbage=replace(seen.garbage, collections=(young,)))
    summary = gc.check(automatic).summary
    assert summary.startswith("a collection every") and "begun in reference/loop.py" in summary


@pytest.mark.parametrize(("count", "sure"), [(1, False), (2, False), (4, True), (100, True)])
def test_a_collection_that_was_seen_once_is_no_rate(count: int, sure: bool) -> None:
    seen = recorded("gc_pressure")
    assert seen.garbage is not None
    few = replace(seen.garbage.collections[0], count=count)
    gain = gc.check(replace(seen, garbage=replace(seen.garbage, collections=(few,)))).gain
    assert gain is not None
    assert (gain.low > 1.01) is sure


def test_how_often_is_told_in_steps_as_they_were_in_the_window() -> None:
    seen = recorded("gc_pressure")
    assert seen.steps is not None
    steps = replace(seen.steps, slowed=2.0, time_ms=seen.steps.time_ms / 2)
    assert gc.check(replace(seen, steps=steps)).summary == gc.check(seen).summary


def test_many_live_objects_alone_are_no_finding() -> None:
    seen = recorded("healthy")
    assert seen.garbage is not None
    garbage = replace(seen.garbage, live_objects=5_000_000)
    assert gc.check(replace(seen, garbage=garbage)).kind == "ok"


def test_collections_hidden_behind_the_device_are_a_hint_until_they_are_tried() -> None:
    seen = recorded("gc_pressure")
    assert seen.steps is not None
    hidden = replace(seen, steps=replace(seen.steps, exposed_gc_ms=0.1))
    outcome = gc.check(hidden)
    assert outcome.kind == "hint" and outcome.fixes[0].change is not None
    assert_sound(outcome, hidden)
    few = replace(hidden, steps=replace(hidden.steps, gc_ms=0.01)) if hidden.steps else hidden
    assert gc.check(few).kind == "ok"


def test_freezing_is_tried_before_the_program_is_changed() -> None:
    changes = [fix.change for fix in gc.check(recorded("gc_pressure")).fixes]
    assert [change.workload for change in changes if change] == [
        {"process.gc_freeze": True},
        {"process.gc_collect_every": 0},
    ]


def test_freezing_is_not_offered_where_it_is_in_use() -> None:
    fixes = gc.check(pressed(Process(gc_freeze=True, gc_collect_every=5))).fixes
    assert [fix.how for fix in fixes] == ["[process] gc_collect_every = 0"]


def test_a_workload_with_every_fix_in_use_still_gets_advice() -> None:
    seen = pressed(Process(gc_freeze=True))
    assert_sound(gc.check(seen), seen)


def of_a_script(*, explicit: bool) -> Observation:
    """The run that collects, as if a script did so: by a call of its own, or by chance."""
    seen = recorded("gc_pressure")
    assert seen.garbage is not None
    worst = replace(seen.garbage.collections[0], explicit=explicit)
    return replace(
        seen,
        target=replace(seen.target, kind="script", workload=None),
        garbage=replace(seen.garbage, collections=(worst,)),
    )


def test_a_script_is_told_which_call_to_remove() -> None:
    script = of_a_script(explicit=True)
    outcome = gc.check(script)
    assert_sound(outcome, script)
    assert re.match(r"remove gc\.collect\(\) at reference/loop\.py:\d+$", outcome.fixes[0].how)
    assert outcome.fixes[0].change == Change(gc_skip_collect=True, step={"collecting": 0})


def test_a_script_that_python_collects_in_is_told_to_freeze() -> None:
    script = of_a_script(explicit=False)
    outcome = gc.check(script)
    assert_sound(outcome, script)
    assert "gc.freeze()" in outcome.fixes[0].how
    assert outcome.fixes[0].change == Change(gc_freeze=True, step={"collecting": 0})


def test_collections_of_young_objects_are_left_and_so_are_those_that_nobody_asks_for() -> None:
    seen = of_a_script(explicit=False)
    assert seen.garbage is not None
    full = replace(seen.garbage.collections[0], total_ms=900.0)
    young = replace(full, total_ms=100.0, generation=1)

    def change(*collections: Collection) -> Change:
        garbage = replace(needed(seen.garbage), collections=collections)
        return needed(gc.check(replace(seen, garbage=garbage)).fixes[0].change)

    assert change(full, young) == Change(gc_freeze=True, step={"collecting": 0.1})
    asked = replace(full, explicit=True)
    assert change(asked, young) == Change(gc_skip_collect=True, step={"collecting": 0.1})
    mostly_young = change(replace(full, total_ms=100.0), replace(young, total_ms=900.0))
    assert mostly_young == Change(step={"collecting": 0}, is_bound=True)
    assert change(replace(full, total_ms=0.0)) == Change(gc_freeze=True, step={"collecting": 0})
