"""What the host does beside a step, from what was observed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from perfdoctor.replay.changes import changed, rare_ms
from perfdoctor.replay.conditions import (
    Host,
    alone,
    host_of,
    loading_share,
    waiting_share,
)
from perfdoctor.schema.calls import Call, Restless, StepCalls
from perfdoctor.schema.capture import AS_IT_IS, NO_CALLBACKS, Conditions, Replayed
from perfdoctor.schema.steps import Steps
from tests.calls import call_of

times = st.floats(0, 1e3)
shares = st.floats(0, 1)


def call(before_ms: float, before_cpu_ms: float) -> Call:
    """Of which nothing else matters here."""
    return call_of(
        before_ms=before_ms, before_cpu_ms=before_cpu_ms, inside_ms=0.1, inside_cpu_ms=0.1
    )


def observed(*calls: Call, ready: float = 0.0, **others: float) -> StepCalls:
    """Steps of such calls."""
    return StepCalls(calls=calls, time_ms=10.0, steps=100, ready=ready, **others)  # type: ignore[arg-type]


def steps(synchronized: float = 0.0, etl_ms: float = 0.0, gc_ms: float = 0.0) -> Steps:
    """Of 10 ms, 2 of which the main thread dispatches and 3 it waits."""
    return Steps(
        function="step",
        count=100,
        left_out=0,
        time_ms=10.0,
        median_ms=10.0,
        p95_ms=10.0,
        standard_error_ms=0.1,
        device_busy_ms=10.0,
        exposed_etl_ms=0.0,
        exposed_dispatch_ms=0.0,
        exposed_wait_ms=0.0,
        exposed_gc_ms=0.0,
        exposed_other_ms=0.0,
        etl_ms=etl_ms,
        dispatch_ms=2.0,
        wait_ms=3.0,
        gc_ms=gc_ms,
        cpu_ms=10.0,
        dispatches=1.0,
        waits=synchronized,
        batch_size=None,
        samples_per_s=None,
    )


def told(calls: StepCalls, seen: Steps | None = None, alone_ms: float = 4.0) -> Conditions:
    """What is replayed as it was observed."""
    by_itself = Replayed(steps=1, wall_s=alone_ms / 1e3, waited_ms=alone_ms)
    return host_of(calls, seen, by_itself, AS_IT_IS).as_observed


def test_a_step_alone_has_nothing_beside_it() -> None:
    assert alone("float32") == Conditions(program="float32", resident="all")


@pytest.mark.parametrize(
    ("waits", "idle_ms", "after"),
    [
        (3.0, (1.0, 0.0, 2.0), (1, 2)),
        (5.0, (1.0, 1.5, 2.0), (0, 1, 2)),
        (1.0, (1.0, 1.5, 2.0), ()),
        (2.0, (2.0, 0.1, 0.0), ()),
        (0.2, (1.0, 1.5, 2.0), ()),
    ],
)
def test_it_waits_after_the_calls_after_which_it_was_blocked(
    waits: float, idle_ms: tuple[float, ...], after: tuple[int, ...]
) -> None:
    """`idle_ms`: for how long it is blocked before each of three calls."""
    calls = observed(*(call(each + 0.5, 0.5) for each in idle_ms))
    traced = structs.replace(steps(synchronized=waits), calls={"step": 3.0})
    assert told(calls, traced).waits_after == after
    twice = structs.replace(steps(synchronized=2 * waits), calls={"step": 6.0})
    assert told(calls, twice).waits_after == after
    assert told(calls, structs.replace(traced, is_traced=False)).waits_after == ()
    assert told(structs.replace(calls, threads=2), traced).waits_after == ()
    assert told(calls, traced, alone_ms=100.0).waits_after == (), "it is hardly blocked"


def test_a_host_that_does_not_wait_only_works() -> None:
    found = told(observed(call(3.0, 3.0)), steps(synchronized=0.0))
    assert found == Conditions(spin_ms=(3.0,), sleep_ms=(0.0,))


def test_a_host_that_waits_for_each_step_is_blocked_by_nothing_else() -> None:
    found = told(observed(call(4.0, 0.0)), steps(synchronized=1.0))
    assert (found.waits, found.spin_ms, found.sleep_ms) == (1.0, (0.0,), (0.0,))


def test_what_blocks_it_for_longer_than_a_step_is_a_sleep() -> None:
    found = told(observed(call(10.0, 0.0)), steps(synchronized=1.0))
    assert (found.waits, found.sleep_ms) == (1.0, (6.0,))


def test_work_that_shortens_the_wait_is_done_before_it() -> None:
    found = told(observed(call(6.0, 5.0)), steps(synchronized=1.0))
    assert (found.overlap_ms, found.spin_ms) == (3.0, (2.0,))


def test_no_more_work_is_done_before_the_wait_than_there_is() -> None:
    found = told(observed(call(2.0, 1.0)), steps(synchronized=1.0))
    assert (found.overlap_ms, found.spin_ms) == (1.0, (0.0,))


def test_no_work_is_done_before_the_wait_that_was_seen_beside_an_idle_device() -> None:
    seen = structs.replace(steps(synchronized=1.0), device_busy_ms=5.0, exposed_other_ms=5.0)
    found = told(observed(call(6.0, 5.0)), seen)
    assert (found.overlap_ms, found.spin_ms) == (0.0, (5.0,))


def test_half_of_the_work_is_hidden_where_the_device_idles_for_the_other_half() -> None:
    seen = structs.replace(steps(synchronized=1.0), device_busy_ms=7.5, exposed_other_ms=2.5)
    found = told(observed(call(6.0, 5.0)), seen)
    assert (found.overlap_ms, found.spin_ms) == (2.5, (2.5,))


def test_a_host_that_waits_in_most_steps_waits_in_each_and_rarely_as_often_as_seen() -> None:
    assert told(observed(call(4.0, 0.0)), steps(synchronized=0.6)).waits == 1.0
    assert told(observed(call(4.0, 0.0)), steps(synchronized=0.1)).waits == 0.1


def test_where_the_stacks_tell_nothing_the_results_do() -> None:
    assert waiting_share(observed(call(1.0, 0.0), ready=0.95), None, is_blocked=True) == 1.0
    assert waiting_share(observed(call(1.0, 0.0), ready=0.95), None, is_blocked=False) == 0.0
    assert waiting_share(observed(call(1.0, 0.0), ready=0.5), None, is_blocked=True) == 0.0


def test_the_main_threads_stacks_tell_nothing_of_others() -> None:
    calls = observed(call(1.0, 0.0), threads=3)
    assert waiting_share(calls, steps(synchronized=1.0), is_blocked=True) == 0.0


def test_a_host_that_is_never_blocked_does_not_wait_or_works_for_longer_than_the_step() -> None:
    """The device has computed meanwhile, longer than alone, since they share the cores."""
    by_itself = Replayed(steps=1, wall_s=0.02, waited_ms=20.0)
    calls = observed(call(60.0, 60.0), ready=1.0)
    untraced = structs.replace(steps(synchronized=1.0), is_traced=False)
    unheld = host_of(calls, untraced, by_itself, AS_IT_IS).as_observed
    assert (unheld.waits, unheld.spin_ms, unheld.overlap_ms) == (0.0, (60.0,), 0.0)
    reads = host_of(calls, steps(synchronized=1.0), by_itself, AS_IT_IS).as_observed
    assert (reads.waits, reads.spin_ms, reads.overlap_ms) == (1.0, (0.0,), 60.0)
    held = observed(call(65.0, 60.0), ready=1.0)
    blocked = host_of(held, steps(synchronized=1.0), by_itself, AS_IT_IS).as_observed
    assert (blocked.waits, blocked.spin_ms, blocked.overlap_ms) == (1.0, (45.0,), 15.0)


def test_waiting_for_a_core_is_no_sleep() -> None:
    found = told(observed(call(5.0, 3.0), delayed_ms=1.5), steps())
    assert found.sleep_ms == (0.5,)


def test_a_call_that_waited_longer_only_while_we_looked_is_blocked_as_long_as_it_was_before() -> (
    None
):
    assert told(observed(call(9.0, 1.0), between_ms=4.0), steps()).sleep_ms == (3.0,)
    assert told(observed(call(9.0, 1.0), between_ms=0.5), steps()).sleep_ms == (0.0,)
    assert told(observed(call(9.0, 1.0), between_ms=20.0), steps()).sleep_ms == (8.0,)


def test_the_host_works_no_longer_than_there_is_time_between_the_calls() -> None:
    seen = observed(call(9.0, 6.0), call(3.0, 2.0), between_ms=4.0)
    assert told(seen, steps()).spin_ms[:2] == pytest.approx((3.0, 1.0))
    assert told(structs.replace(seen, between_ms=None), steps()).spin_ms[:2] == pytest.approx(
        (6.0, 2.0)
    )


def test_a_sleep_lies_where_the_host_was_blocked() -> None:
    found = told(observed(call(3.0, 0.0), call(1.0, 0.0)), steps())
    assert found.sleep_ms == (3.0, 1.0)


def test_other_threads_and_processes_are_replayed_too() -> None:
    calls = observed(call(1.0, 1.0), threads_cpu_ms=2.0, children_cpu_ms=3.0, threads=2)
    found = told(calls, steps())
    assert (found.threads_ms, found.children_ms, found.callers) == (2.0, 3.0, 2)


@pytest.mark.parametrize(
    ("threads_cpu_ms", "threads", "sets_pace"), [(9.0, 1, True), (11.0, 1, False), (9.0, 2, False)]
)
def test_what_one_thread_can_do_in_a_step_sets_its_pace(
    threads_cpu_ms: float, threads: int, sets_pace: bool
) -> None:
    calls = observed(call(1.0, 1.0), threads_cpu_ms=threads_cpu_ms, threads=threads)
    found = told(structs.replace(calls, time_ms=10.0), steps())
    assert found.threads_set_pace == sets_pace


def test_who_is_blocked_while_other_threads_work_waits_for_them() -> None:
    calls = observed(call(5.0, 1.0), threads_cpu_ms=6.0)
    found = told(calls, steps(synchronized=0.0))
    assert (found.sleep_ms, found.awaited_ms, found.threads_ms) == ((4.0,), 6.0, 0.0)


@pytest.mark.parametrize(("delayed_ms", "sleep_ms"), [(0.0, 4.0), (1.0, 3.0), (3.5, 2.0)])
def test_who_waits_for_threads_without_a_core_does_not_sleep(
    delayed_ms: float, sleep_ms: float
) -> None:
    calls = observed(call(5.0, 1.0), threads_cpu_ms=2.0, threads_delayed_ms=delayed_ms)
    found = told(calls, steps(synchronized=0.0))
    assert (found.sleep_ms, found.awaited_ms) == ((sleep_ms,), 2.0)


def test_who_is_hardly_blocked_waits_for_nobody() -> None:
    calls = observed(call(1.5, 1.0), threads_cpu_ms=6.0)
    found = told(calls, steps(synchronized=0.0))
    assert (found.sleep_ms, found.awaited_ms, found.threads_ms) == ((0.5,), 0.0, 5.5)


def test_of_a_sleep_that_is_all_loading_nothing_is_left_however_much_the_host_works() -> None:
    calls = observed(call_of(before_ms=9.0, before_cpu_ms=1.0, inside_ms=4.0, inside_cpu_ms=3.0))
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(0.0,))
    host = host_of(calls, steps(etl_ms=9.0, synchronized=0.0), by_itself, AS_IT_IS)
    assert (host.awaiting_share, host.loading_share) == (1.0, 0.25)


def test_garbage_that_another_thread_collects_is_not_work_of_that_thread_as_well() -> None:
    now_and_then = {"rare_ms": 37.0, "collecting_ms": 36.0, "collecting_beside_ms": 36.0}
    calls = observed(call(1.0, 1.0), ready=1.0, threads_cpu_ms=41.0, **now_and_then)
    host = host_of(calls, steps(), Replayed(steps=1, wall_s=0.004), AS_IT_IS)
    assert (host.as_observed.threads_ms, host.rare_ms) == (5.0, 37.0)
    assert rare_ms(host, {"collecting": 0}) == 1.0


def test_a_call_that_compiles_each_time_does_no_other_work() -> None:
    compiling = observed(call(1.0, 1.0), compilations=1.0)
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(0.0,))
    assert host_of(compiling, steps(synchronized=0.0), by_itself, AS_IT_IS).as_observed.spin_ms == (
        1.0,
    )


def test_what_compiles_now_and_then_is_left_as_it_is_unless_that_is_the_fix() -> None:
    by_itself = Replayed(steps=1, wall_s=0.004)
    ahead = observed(call(1.0, 1.0), compiling_ms=60.0, rare_ms=50.0)
    host = host_of(ahead, steps(), by_itself, AS_IT_IS)
    assert host.rare_ms == rare_ms(host, {"waits": 0.0}) == 60.0
    assert rare_ms(host, {"compiled": "once"}) == 0.0
    waiting = observed(call(1.0, 1.0), ready=1.0, compiling_ms=60.0, rare_ms=75.0)
    with_evaluation = host_of(waiting, steps(), by_itself, AS_IT_IS)
    assert rare_ms(with_evaluation, {"compiled": "once"}) == 15.0


def test_what_is_collected_now_and_then_is_work_of_a_host_that_runs_ahead() -> None:
    by_itself = Replayed(steps=1, wall_s=0.004)
    host = host_of(observed(call(0.2, 0.2), collecting_ms=24.0), steps(), by_itself, AS_IT_IS)
    assert host.as_observed.spin_ms == pytest.approx((24.0,))
    assert changed(host, {"collecting": 0}).spin_ms == pytest.approx((0.0,))
    each = host_of(observed(call(5.0, 5.0), collecting_ms=4.0), steps(), by_itself, AS_IT_IS)
    assert each.as_observed.spin_ms == (5.0,)


def test_who_waits_for_a_fresh_program_sleeps_no_longer_than_for_one_that_has_run() -> None:
    by_itself = Replayed(steps=1, wall_s=0.014, waited_ms=14.0)
    waiting = call(33.0, 1.0)
    for compilations, sleep_ms in ((0.0, 18.0), (1.0, 0.0)):
        seen = observed(waiting, ready=1.0, compilations=compilations)
        found = host_of(seen, None, by_itself, AS_IT_IS).as_observed
        assert found.waits == 1.0
        assert found.sleep_ms == pytest.approx((sleep_ms,))


def test_loading_is_told_from_the_rest_of_what_the_host_does_itself() -> None:
    calls = observed(call(9.0, 5.0))
    assert loading_share(calls, steps(etl_ms=2.0)) == pytest.approx(0.4)
    assert loading_share(calls, steps(etl_ms=2.0, gc_ms=1.0)) == pytest.approx(0.5)
    assert loading_share(calls, steps(etl_ms=9.0)) == 1.0
    assert loading_share(calls, steps(etl_ms=2.0, gc_ms=5.0)) == 0.0
    assert loading_share(calls, None) == 0.0


def test_what_a_call_takes_that_computes_the_step_is_not_the_hosts() -> None:
    """Of 10 ms the call takes 3 more than the 2 that dispatch tells of."""
    calls = observed(call(5.0, 2.0))
    assert loading_share(calls, steps(etl_ms=1.0)) == pytest.approx(0.5)
    in_others = structs.replace(calls, threads=2)
    assert loading_share(in_others, steps(etl_ms=1.0)) == pytest.approx(0.2)


def test_collections_now_and_then_do_not_hide_loading() -> None:
    """Of 10 ms in the mean 3 are collections of a few steps; usual ones have 2 before the call."""
    calls = observed(call(2.0, 2.0), collecting_ms=3.0, rare_ms=3.0, ready=1.0)
    seen = structs.replace(steps(etl_ms=1.0, gc_ms=3.0), wait_ms=0.0)
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(0.1,))
    assert loading_share(calls, seen) == pytest.approx(0.5)
    assert host_of(calls, seen, by_itself, AS_IT_IS).loading_share == pytest.approx(0.5)


def test_a_wait_inside_of_a_call_is_none_between_calls() -> None:
    assert loading_share(observed(call(2.0, 2.0)), steps(etl_ms=1.0)) == pytest.approx(0.5)


RESTLESS = (
    Restless(name="Thread-1 (work)", is_process=False, cpu_ms=3.0, cores=0.6),
    Restless(name="python 7", is_process=True, cpu_ms=2.0, cores=1.1),
)


def beside_restless_ones(*restless: Restless) -> StepCalls:
    return structs.replace(
        observed(call(6.0, 1.0)),
        restless=restless,
        threads_cpu_ms=4.0,
        children_cpu_ms=2.0,
    )


def test_what_never_rests_is_beside_whatever_the_step_does() -> None:
    found = told(beside_restless_ones(*RESTLESS), steps())
    assert (found.restless, found.restless_threads) == (2, 0)  # of 1.7 cores
    assert (found.threads_ms, found.children_ms) == (1.0, 0.0)
    assert found.sleep_ms == (0.0,)  # the host waits for its turn
    without = changed(Host(found, 0.0, 0.0, 0.0), {"restless": 0})
    assert without == structs.replace(found, restless=0)


def test_as_many_processes_load_as_were_seen_without_those_that_never_rest() -> None:
    calls = structs.replace(beside_restless_ones(*RESTLESS), children=3)
    never_rest = sum(each.is_process for each in RESTLESS)
    assert never_rest == 1
    assert told(calls, steps()).children == 3 - never_rest
    assert told(calls, steps(etl_ms=5.0)).children == 3  # the step waits for all of them
    assert told(structs.replace(calls, children=0), steps()).children == 0


def test_threads_that_hold_the_interpreter_hold_it_in_the_replay() -> None:
    holding = structs.replace(RESTLESS[0], holds_interpreter=True)
    found = told(beside_restless_ones(holding, RESTLESS[1]), steps())
    assert (found.restless, found.restless_threads) == (1, 1)
    without = changed(Host(found, 0.0, 0.0, 0.0), {"restless": 0})
    assert (without.restless, without.restless_threads) == (0, 0)


def test_what_the_step_waits_for_is_work_of_the_steps_though_it_never_rests() -> None:
    found = told(beside_restless_ones(*RESTLESS), steps(etl_ms=5.0))
    assert (found.restless, found.children_ms) == (0, 2.0)
    assert found.sleep_ms == (5.0,)


@given(times, times, shares, times)
def test_a_host_never_works_more_than_it_was_seen_to(
    cpu_ms: float, blocked_ms: float, synchronized: float, alone_ms: float
) -> None:
    calls = observed(call(cpu_ms + blocked_ms, cpu_ms))
    found = told(calls, steps(synchronized=synchronized), alone_ms)
    assert found.work_ms == pytest.approx(cpu_ms)
    assert min(*found.spin_ms, *found.sleep_ms, found.overlap_ms) >= 0
    assert sum(found.sleep_ms) <= blocked_ms * (1 + 1e-9) + 1e-9


def test_who_only_had_no_core_did_not_wait_for_what_they_load() -> None:
    calls = structs.replace(beside_restless_ones(*RESTLESS), delayed_ms=5.0)
    assert told(calls, steps(etl_ms=5.0)).restless == 2


def test_collecting_is_no_loading() -> None:
    """Of 10 ms of work, and 3 of waiting, 8 are a collection's; of the rest half is loading."""
    seen = structs.replace(steps(etl_ms=1.0), time_ms=15.0, gc_ms=8.0)
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(0.1,))
    calls = structs.replace(observed(call(13.0, 10.0), collecting_ms=8.0), time_ms=15.0)
    assert host_of(calls, seen, by_itself, AS_IT_IS).loading_share == pytest.approx(0.1)


def test_collections_now_and_then_are_no_work_of_each_step() -> None:
    """Of 8 ms a step 5 are in steps that take long, as an evaluation is."""
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(0.1,))
    calls = observed(call(4.0, 4.0), ready=1.0, collecting_ms=8.0, rare_ms=5.0)
    host = host_of(calls, steps(), by_itself, AS_IT_IS)
    assert (host.rare_ms, host.collecting_ms) == (5.0, 3.0)
    assert rare_ms(host, {"collecting": 0}) == 0.0 and rare_ms(host, {"waits": 0.0}) == 5.0
    assert changed(host, {"collecting": 0}).work_ms == pytest.approx(1.0)


def test_what_is_read_more_rarely_is_worked_on_more_rarely() -> None:
    seen = structs.replace(steps(synchronized=1.0), reading_ms=3.0)
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(0.1,))
    host = host_of(observed(call(4.0, 4.0)), seen, by_itself, AS_IT_IS)
    assert host.as_observed.spin_ms == (4.0,) and host.as_observed.waits == 1.0
    rarely = changed(host, {"waits": 0.1})
    assert rarely.waits == 0.1 and rarely.spin_ms == pytest.approx((4.0 - 0.9 * 3.0,))
    assert changed(host, {"waits": 1.0}) == host.as_observed


def test_what_callbacks_take_in_a_call_is_left_out_with_them() -> None:
    """A call takes 6 ms of the processor, 1 ms of it without callbacks."""
    calling = structs.replace(call(1.0, 1.0), inside_cpu_ms=6.0)
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(1.0,))
    for program, expected_ms in ((NO_CALLBACKS, 0.0), (AS_IT_IS, 5.0)):
        host = host_of(observed(calling), steps(), by_itself, program)
        assert host.as_observed.spin_ms == pytest.approx((1.0 + expected_ms,))


def test_calls_that_compile_take_no_more_of_a_step_than_compiling_leaves() -> None:
    """A call takes 6 ms of the processor, which compiling has in some of them, 1 ms in a replay."""
    compiling = structs.replace(call(1.0, 1.0), inside_cpu_ms=6.0)
    by_itself = Replayed(steps=1, wall_s=0.004, inside_cpu_ms=(1.0,))
    for compiling_ms, expected_ms in ((0.0, 5.0), (3.0, 5.0), (8.0, 2.0)):
        calls = observed(compiling, compilations=0.3, compiling_ms=compiling_ms)
        host = host_of(calls, steps(), by_itself, AS_IT_IS)
        assert host.as_observed.spin_ms == pytest.approx((1.0 + expected_ms,))


def test_calls_in_bursts_beside_callbacks_are_not_done_now_and_then() -> None:
    by_itself, bursts = Replayed(steps=1, wall_s=0.004), observed(call(1.0, 1.0), ready=1.0)
    bursts = structs.replace(bursts, rare_ms=5.0)
    uneven = structs.replace(steps(), outliers=1)
    for program, seen, expected_ms in (
        (NO_CALLBACKS, steps(), 0.0),
        (NO_CALLBACKS, uneven, 5.0),
        (NO_CALLBACKS, None, 5.0),
        (AS_IT_IS, steps(), 5.0),
    ):
        assert host_of(bursts, seen, by_itself, program).rare_ms == expected_ms
