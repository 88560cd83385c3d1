from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from perfdoctor.schema.fix import Change, Scalar
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.parts import Parts
from perfdoctor.trials.on_object import on_the_object
from tests.recorded import recorded

HEALTHY = recorded("healthy")
ALL = Parts(batch_size=8, takes_batch_size=True, is_jitted=False, hands_over_again=True)
NONE = Parts(is_jitted=True)
MADE: list[tuple[Mapping[str, Scalar], bool, bool]] = [
    ({"loading": "thread"}, True, True),
    ({"loading": "nowhere"}, True, True),
    ({"loading": "process"}, False, False),
    ({"waits": 0.02}, True, True),
    ({"donated": True}, True, True),
    ({"jitted": "whole"}, True, False),
    ({"resident": "state"}, True, False),
    ({"program": "batch-8-to-32"}, True, False),
    ({"program": "float32"}, True, True),
    ({"program": "no-callbacks"}, True, True),
    ({"program": "together"}, False, False),
    ({"compiled": "once"}, False, False),
    ({"donated": True, "compiled": "once"}, False, False),
]


def never(base: Change, change: Change, until: float) -> list[float]:
    raise AssertionError


def can(change: Change, parts: Parts = NONE, seen: Observation = HEALTHY) -> bool:
    return on_the_object(never, parts, seen).can(change)


@pytest.mark.parametrize(("step", "with_all", "with_none"), MADE, ids=str)
def test_what_the_loop_can_do_depends_on_what_the_workload_offers(
    step: dict[str, Scalar], with_all: bool, with_none: bool
) -> None:
    assert can(Change(step=step), ALL) is with_all
    assert can(Change(step=step), NONE) is with_none


def test_what_is_about_the_process_can_be_changed_too() -> None:
    assert can(Change(gc_freeze=True, step={"collecting": 0}))
    assert can(Change(settings={"jax_enable_x64": False}, step={"program": "float32"}))
    assert can(Change(env={"NPROC": "1"}))
    set_in_code = replace(HEALTHY, set_in_code=("NPROC",))
    assert not can(Change(env={"NPROC": "1"}), NONE, set_in_code)
    assert not can(Change(env={"A": "1"}, speeds_up="launch"))
    assert not can(Change(workload={"training.jit": True}))
    assert not can(Change())


def test_a_step_that_is_jitted_needs_no_jit_where_it_was_switched_off() -> None:
    change = Change(settings={"jax_disable_jit": False}, step={"jitted": "whole"})
    assert can(change, NONE)


def test_what_is_gained_on_top_is_measured_with_the_base_on_both_sides() -> None:
    played: list[tuple[Change, Change]] = []

    def play(base: Change, change: Change, until: float) -> list[float]:
        played.append((base, change))
        return [0.1]

    way = on_the_object(play, ALL, HEALTHY)
    one, other = Change(step={"donated": True}), Change(step={"waits": 0.0})
    assert way.after is not None
    assert way.play(one, 0.0) == way.after(one)(other, 0.0) == [0.1]
    assert played == [(Change(), one), (one, other)]


def test_work_on_what_is_read_would_stay_so_it_is_measured_on_the_step_alone() -> None:
    assert HEALTHY.steps is not None
    change = Change(step={"waits": 0.02})
    for reading_ms, made in ((0.0, True), (HEALTHY.steps.time_ms / 2, False)):
        steps = replace(HEALTHY.steps, reading_ms=reading_ms)
        assert can(change, ALL, replace(HEALTHY, steps=steps)) is made
