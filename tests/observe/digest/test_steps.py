from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.observe.digest.attribution import OP_BY_OP, code_of
from perfdoctor.observe.digest.compiles import LAST_PHASE
from perfdoctor.observe.digest.intervals import NOTHING, Intervals, union
from perfdoctor.observe.digest.repetition import step_function, weights_of
from perfdoctor.observe.digest.runs import Operation, Run, Runs
from perfdoctor.observe.digest.sample import RUN_AHEAD, fair_sample
from perfdoctor.observe.digest.steps import steps_of
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.schema.calls import Call, StepCalls
from perfdoctor.schema.recording import (
    CollectionEvent,
    CompileEvent,
    ExecutableRecord,
    Frame,
    Recording,
    Window,
)
from perfdoctor.schema.run import Handed, Place
from perfdoctor.schema.steps import Steps
from tests.calls import call_of

Pairs = list[tuple[int, int]]
MS = 1_000_000
COUNT = 20
TRAIN: Frame = ("/home/me/train.py", 10, "train")
LOADER: Frame = ("/home/me/loader.py", 30, "Loader.__next__")
SAVE: Frame = ("/home/me/train.py", 40, "save_checkpoint")
LOADING, TRAINING, SAVING = [LOADER, TRAIN], [TRAIN], [SAVE, TRAIN]


def every_step(start_ms: float, end_ms: float, count: int = COUNT) -> Intervals:
    """The same part of each of `count` steps of 10 ms."""
    return union(
        (round((10 * step + start_ms) * MS), round((10 * step + end_ms) * MS))
        for step in range(count)
    )


def timeline(
    dispatches: Intervals | dict[str, Intervals],
    busy: Intervals,
    waits: Iterable[tuple[int, int]] | Intervals = (),
    **more: Any,
) -> Timeline:
    if not isinstance(dispatches, dict):
        dispatches = {"step": dispatches}
    return Timeline(dispatches=dispatches, waits=union(waits), busy=busy, **more)


def recording(
    stack: list[Frame] = TRAINING,
    collections: Iterable[tuple[int, int]] = (),
    compiled_at_ms: tuple[float, ...] = (),
    cpu_s: float = 0.0,
) -> Recording:
    """Of a window of 21 steps; the main thread is sampled each millisecond.

    In the first of each step, where the step is called, in `train`; in the others in `stack`.
    """
    return Recording(
        start_ns=0,
        window=Window(start_ns=0, end_ns=210 * MS, cpu_s=cpu_s, steady=True),
        stacks=[stack, TRAINING],
        samples=[(MS // 2 + MS * index, int(index % 10 == 0)) for index in range(210)],
        collections=[
            CollectionEvent(
                generation=2, start_ns=start, end_ns=end, collected=0, frame=TRAIN, source=""
            )
            for start, end in collections
        ],
        compiles=[
            CompileEvent(phase=LAST_PHASE, function="step", seconds=0.1, end_ns=round(at * MS))
            for at in compiled_at_ms
        ],
    )


def seen(timeline: Timeline, recording: Recording) -> Steps:
    steps = steps_of(timeline, recording)
    assert steps is not None
    return steps


def called(function: str) -> Call:
    """A call of a step, as it was probed."""
    return call_of(
        function=function, before_ms=0.1, before_cpu_ms=0.1, inside_ms=0.1, inside_cpu_ms=0.1
    )


def parts_together_ms(steps: Steps) -> float:
    return (
        steps.device_busy_ms
        + steps.exposed_etl_ms
        + steps.exposed_dispatch_ms
        + steps.exposed_wait_ms
        + steps.exposed_gc_ms
        + steps.exposed_logging_ms
        + steps.exposed_other_ms
    )


DISPATCHES = every_step(0, 1, COUNT + 1)
"""The last one ends the last step."""


def test_a_healthy_run_is_busy() -> None:
    steps = seen(timeline(DISPATCHES, every_step(0.5, 10)), recording(cpu_s=0.42))
    assert (steps.function, steps.count, steps.left_out) == ("step", COUNT, 0)
    assert steps.time_ms == steps.median_ms == steps.p95_ms == 10.0
    assert steps.standard_error_ms == 0.0
    assert steps.device_busy_ms == pytest.approx(9.5)
    assert steps.exposed_dispatch_ms == pytest.approx(0.5)
    assert steps.dispatch_ms == pytest.approx(1.0)
    assert steps.dispatches == 1.0
    assert steps.cpu_ms == pytest.approx(20.0)
    assert parts_together_ms(steps) == pytest.approx(10.0)


def test_times_are_told_as_they_are_without_a_trace() -> None:
    operation = Operation("jit_step", 7, "dot")
    traced = timeline(
        DISPATCHES,
        every_step(0.5, 10),
        every_step(8, 9),
        operations=np.arange(MS, 200 * MS, MS),  # nine a step, while the device computes
        runs={operation: Runs(Run(220, 0), Run(240, 200 * MS), 21)},
    )
    begin_ns = -1000 * MS  # 200 runs in 1000 ms: 5 ms each
    preview = timeline(NOTHING, NOTHING, runs={operation: Runs(Run(10, 0), Run(20, begin_ns), 11)})
    with patch("perfdoctor.observe.digest.untraced.EVENT_MS", 1.0):  # there are few
        steps = steps_of(traced, recording(cpu_s=0.42), preview)
    assert steps is not None
    assert steps.slowed == pytest.approx(2.0)
    assert (steps.time_ms, steps.median_ms, steps.p95_ms) == pytest.approx((5.0, 5.0, 5.0))
    assert steps.cpu_ms == pytest.approx(10.0)
    assert steps.exposed_dispatch_ms == pytest.approx(0.5)
    assert steps.device_busy_ms == pytest.approx(4.5)
    assert steps.wait_ms == pytest.approx(1 - 2 * 5 / 18)
    assert parts_together_ms(steps) == pytest.approx(5.0)


def test_waits_are_counted_each_and_by_the_steps_that_hold_them() -> None:
    each = seen(timeline(DISPATCHES, every_step(0.5, 10), every_step(8, 9)), recording())
    assert (each.waits, each.waiting_steps, each.synchronized) == (1.0, 1.0, 1.0)
    at_once = [
        (at_ms * MS + n * 1000, at_ms * MS + n * 1000 + 500)
        for at_ms in (5, 95, 195)
        for n in range(40)
    ]
    once = seen(timeline(DISPATCHES, every_step(0.5, 10), at_once), recording())
    assert once.waits >= 2.0
    assert once.waiting_steps == once.synchronized == pytest.approx(2 / once.count)


def test_a_slow_loader_is_exposed_while_the_device_is_idle() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 4)), recording(LOADING))
    assert steps.etl_ms == pytest.approx(9.0)
    assert steps.exposed_etl_ms == pytest.approx(6.0)
    assert steps.device_busy_ms == pytest.approx(3.0)
    assert steps.exposed_other_ms == pytest.approx(0.0)


def test_what_is_copied_to_an_idle_device_is_waited_for_rather_than_loaded() -> None:
    """By another thread; no event tells that `np.asarray` waits for it, on the CPU."""
    copied = timeline(DISPATCHES, every_step(5, 8), copies_beside=every_step(2, 6))
    steps = seen(copied, recording(LOADING))
    assert steps.exposed_wait_ms == pytest.approx(3.0)
    assert steps.exposed_etl_ms == pytest.approx(3.0)
    assert steps.waits == 0.0
    assert parts_together_ms(steps) == pytest.approx(steps.time_ms)


def test_what_was_handed_over_is_kept() -> None:
    where = Place(function="train", file="/home/me/train.py", line=10, share=0.1)
    table = Handed(place=where, shape=(2**20,), dtype="float32", bytes=2**22, unchanged=1.0)
    run = replace(recording(), handed=[table])
    assert seen(timeline(DISPATCHES, every_step(1, 4)), run).handed == (table,)


def test_a_slow_loader_is_named_by_its_line() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 4)), recording(LOADING))
    (place,) = steps.etl_places
    assert (place.file, place.line, place.function) == LOADER
    assert place.share == pytest.approx(0.9)
    assert steps.other_places == ()


def test_time_of_the_host_outside_of_loaders_is_other_time() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 4)), recording(TRAINING))
    assert steps.exposed_other_ms == pytest.approx(6.0)
    assert steps.etl_ms == steps.exposed_etl_ms == 0.0
    (place,) = steps.other_places
    assert (place.file, place.line, place.function) == TRAIN


def test_pythons_time_in_operations_of_jax_is_a_part_of_it() -> None:
    mixed = recording()
    indexing = ("/lib/python3.11/site-packages/jax/_src/array.py", 5, "ArrayImpl.__getitem__")
    mixed.stacks = [TRAINING, [indexing, *TRAINING]]
    mixed.samples = [(instant, index % 2) for index, (instant, _) in enumerate(mixed.samples)]
    steps = seen(timeline(DISPATCHES, every_step(0, 2)), mixed)
    assert steps.exposed_other_ms == pytest.approx(8.0)
    assert steps.exposed_operations_ms == pytest.approx(4.0)


def test_a_line_that_sleeps_is_a_part_of_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("while True:\n    state = step(state)\n    time.sleep(0.02)\n")
    asleep = (str(script), 3, "train")
    mixed = recording()
    mixed.stacks = [TRAINING, [asleep], [(*TRAIN[:2], "log"), asleep]]
    mixed.samples = [(instant, index % 3) for index, (instant, _) in enumerate(mixed.samples)]
    steps = seen(timeline(DISPATCHES, every_step(0, 2)), mixed)
    assert 0 < steps.exposed_sleep_ms < steps.exposed_other_ms / 2
    (place,) = steps.sleep_places
    assert (place.file, place.line, place.function) == asleep
    assert parts_together_ms(steps) == pytest.approx(steps.time_ms)


def test_the_loader_gets_its_share_of_the_samples() -> None:
    mixed = recording()
    mixed.stacks = [TRAINING, LOADING]
    mixed.samples = [(instant, index % 2) for index, (instant, _) in enumerate(mixed.samples)]
    steps = seen(timeline(DISPATCHES, every_step(0, 2)), mixed)
    assert steps.exposed_etl_ms == pytest.approx(4.0)
    assert steps.exposed_other_ms == pytest.approx(4.0)


def test_a_loader_among_many_short_calls_is_no_longer_than_its_stay() -> None:
    """The sampler gets the interpreter in the loader, and else in the calls, not between them."""
    calls = [10 * step + 3.5 + 0.5 * n for step in range(COUNT + 1) for n in range(13)]
    operations = union((round(at * MS), round((at + 0.05) * MS)) for at in calls)
    dispatches = {"step": every_step(0, 0.5, COUNT + 1), "add": operations}
    among = recording()
    among.stacks = [LOADING, TRAINING]
    among.samples = sorted(
        (round((10 * step + at) * MS), number)
        for step in range(COUNT + 1)
        for at, number in ((1.5, 0), (2.5, 0), (4.02, 1), (6.02, 1), (8.02, 1))
    )
    steps = seen(timeline(dispatches, every_step(4, 5)), among)
    assert steps.dispatches == pytest.approx(14)
    assert steps.etl_ms == pytest.approx(3.0)
    assert steps.etl_places[0].share == pytest.approx(2 / 5)


def test_the_devices_time_is_told_by_function() -> None:
    calls = {"step": DISPATCHES, "add": every_step(2, 3)}
    told = timeline(calls, every_step(0, 8), computed_ms={"jit_step": 30.0, "jit_add": 10.0})
    steps = seen(told, recording())
    assert steps.work_ms == pytest.approx({"step": 6.0, "add": 2.0})
    assert seen(timeline(calls, every_step(0, 8)), recording()).work_ms == {}


def test_time_without_samples_is_not_called_loading() -> None:
    unseen = recording(LOADING)
    unseen.samples = []
    steps = seen(timeline(DISPATCHES, every_step(1, 4)), unseen)
    assert steps.etl_ms == 0.0
    assert steps.exposed_other_ms == pytest.approx(6.0)


def test_garbage_collection_is_told_from_what_it_interrupts() -> None:
    collections = [(54 * MS, 58 * MS), (152 * MS, 156 * MS)]
    steps = seen(timeline(DISPATCHES, every_step(1, 5)), recording(LOADING, collections))
    assert steps.gc_ms == pytest.approx(8 / COUNT)
    assert steps.exposed_gc_ms == pytest.approx(4 / COUNT)
    assert steps.exposed_etl_ms == pytest.approx(5 - 4 / COUNT)
    assert parts_together_ms(steps) == pytest.approx(10.0)


def test_work_in_the_function_that_waits_is_work_on_what_it_reads() -> None:
    """In each step half of the host's time in a callback, which waits too; the step is called in
    `train`, that waits for nothing by itself.
    """
    log: Frame = ("/home/me/log.py", 7, "histograms")
    waits = every_step(1, 3)
    told = timeline(DISPATCHES, every_step(0, 2), waits)
    within, elsewhere = [log, TRAIN], [SAVE, TRAIN]
    samples = [
        (MS // 2 + MS * at, 0 if at % 10 == 0 else 1 if at % 10 < 6 else 2) for at in range(210)
    ]
    run = replace(recording(), stacks=[TRAINING, within, elsewhere], samples=samples)
    assert seen(told, run).reading_ms == pytest.approx(3.0)  # of 7 ms, from the 3rd to the 6th
    in_the_loop = replace(run, stacks=[TRAINING, TRAINING, elsewhere])
    assert seen(told, in_the_loop).reading_ms == 0.0


def test_work_in_the_line_of_the_loop_that_waits_is_work_on_what_it_reads() -> None:
    """board.add(np.asarray(metrics["probs"]), labels): the loop waits, and `add` only works."""
    waits_here: Frame = ("/home/me/train.py", 12, "train")
    add: Frame = ("/home/me/board.py", 7, "add")
    told = timeline(DISPATCHES, every_step(0, 2), every_step(1, 3))
    stacks = [TRAINING, [waits_here], [add, waits_here], SAVING]
    each = [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    samples = [(MS // 2 + MS * at, each[at % 10]) for at in range(210)]
    run = replace(recording(), stacks=stacks, samples=samples)
    assert seen(told, run).reading_ms == pytest.approx(3.0)


def test_a_wait_for_a_busy_device_costs_nothing() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 9), every_step(1, 9)), recording())
    assert steps.wait_ms == pytest.approx(8.0)
    assert steps.exposed_wait_ms == pytest.approx(0.0)


def test_a_wait_that_outlasts_the_device_is_exposed() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 6), every_step(1, 9)), recording())
    assert steps.exposed_wait_ms == pytest.approx(3.0)
    (place,) = steps.wait_places
    assert (place.file, place.line, place.function) == TRAIN


def test_where_the_host_waits_only_steps_between_waits_count() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 9), every_step(1, 9)), recording())
    assert steps.count == COUNT - 1
    assert steps.left_out == 0


def test_the_step_that_waits_for_those_before_it_belongs_to_them() -> None:
    ahead = [100 * stretch + step for stretch in range(3) for step in range(10)]  # then it waits
    calls = union((at * MS, at * MS + MS // 2) for at in (*ahead, 300, 301, 302))
    waits = union(((100 * n + 9) * MS + MS // 2, (100 * n + 100) * MS) for n in range(3))
    steps = seen(timeline(calls, union([(0, 310 * MS)]), waits), recording())
    assert steps.count == 20
    assert steps.time_ms == pytest.approx(10.0)


def test_of_a_wait_in_a_step_that_did_not_end_nothing_is_known() -> None:
    steps = seen(timeline(DISPATCHES, NOTHING, [(220 * MS, 230 * MS)]), recording())
    assert steps.count == COUNT


def test_a_program_far_ahead_whose_one_wait_leaves_no_fair_step_is_told_by_what_ran() -> None:
    """As many calls as runs, but of others: the host is as far ahead as it may be."""
    wait = [(105 * MS, 106 * MS)]
    assert steps_of(timeline(DISPATCHES, every_step(0, 9), wait), recording()) is None
    ran = {"jit_step": DISPATCHES[:, 0] + MS // 2}
    told = seen(timeline(DISPATCHES, every_step(0, 9), wait, run_begins=ran), recording())
    assert told.count == COUNT and told.time_ms == pytest.approx(10.0)


def test_a_few_short_calls_after_the_last_wait_do_not_stand_for_the_window() -> None:
    """Of a program that collects garbage in each fifth step, and waited once."""
    begins = [200 * MS * (n // 5) + n % 5 * MS for n in range(54)]
    calls, ran = union((at, at + MS // 2) for at in begins), np.asarray(begins) + MS // 4
    wait = [(602 * MS + MS // 2, 602 * MS + MS // 2 + 1)]
    known = StepCalls(calls=(called("step"),), time_ms=40.0, steps=24)
    run = timeline(calls, calls, wait, run_begins={"jit_step": ran})
    told = seen(run, replace(recording(), step_calls=known))
    assert told.count == 53 and told.time_ms == pytest.approx(2003 / 53)


def test_a_few_steps_do_that_were_timed_without_a_trace() -> None:
    few = timeline(DISPATCHES[:4], every_step(0, 9))
    known = StepCalls(calls=(called("step"),), time_ms=9.0, steps=24)
    assert steps_of(few, recording()) is None
    told = seen(few, replace(recording(), step_calls=known))
    assert told.count == 3 and told.time_ms == pytest.approx(9.0)


def test_two_functions_of_one_name_are_one_step() -> None:
    """As a GAN has them, whose generator and discriminator both are trained by an `update`."""
    both = union(DISPATCHES.tolist() + every_step(4, 5).tolist())
    run = timeline({"update": both}, every_step(0, 9))
    alone = seen(run, recording())
    assert alone.calls == {"update": 1.0}  # nothing tells that there are two
    known = StepCalls(calls=(called("update"), called("update")), time_ms=9.0, steps=24)
    steps = seen(run, replace(recording(), step_calls=known))
    assert (steps.function, steps.count, steps.calls) == ("update", COUNT, {"update": 2.0})
    assert steps.time_ms == pytest.approx(9.0)


def test_steps_that_something_compiled_in_are_left_out() -> None:
    late = [(start + 500 * MS * (start > 55 * MS), end) for start, end in DISPATCHES.tolist()]
    slow = union((start, start + MS) for start, _ in late)
    run = recording(compiled_at_ms=(300.0,))
    steps = seen(timeline(slow, union([(0, 800 * MS)])), run)
    assert (steps.count, steps.left_out) == (COUNT - 1, 1)
    assert steps.time_ms == 10.0


@pytest.mark.parametrize(("seconds", "is_told"), [(0.002, True), (0.003, False)])
def test_a_step_counts_in_a_program_that_compiles_a_little_in_each(
    seconds: float, is_told: bool
) -> None:
    run = recording(compiled_at_ms=tuple(5.0 + 10 * number for number in range(COUNT)))
    for each in run.compiles:
        each.seconds = seconds
    steps = steps_of(timeline(DISPATCHES, every_step(1, 4)), run)
    assert (steps is not None and steps.count == COUNT) is is_told


def test_a_few_calls_around_what_compiles_are_a_set_up_unless_it_never_ends() -> None:
    calls = union((at * MS, at * MS + MS // 2) for at in (*range(10), 200))
    run, late = timeline(calls, NOTHING), 100.0
    assert steps_of(run, recording(compiled_at_ms=(late,))) is None
    for_ever = recording(compiled_at_ms=(late,))
    for_ever.never_rests = True
    assert seen(run, for_ever).count == 9
    assert seen(run, recording()).count == 10


def test_compilations_outside_of_the_window_leave_nothing_out() -> None:
    run = recording(compiled_at_ms=(-5.0, 500.0))
    assert seen(timeline(DISPATCHES, every_step(1, 4)), run).left_out == 0


def test_other_functions_called_in_a_step_count_as_dispatches() -> None:
    calls = {"step": DISPATCHES, "metrics": every_step(2, 2.5), "log": every_step(3, 3.5)}
    steps = seen(timeline(calls, every_step(1, 4)), recording())
    assert steps.function == "step"
    assert steps.dispatches == 3.0
    assert steps.dispatch_ms == pytest.approx(2.0)


def test_a_slow_drift_shows_in_the_standard_error() -> None:
    starts = np.cumsum(np.linspace(5, 15, COUNT + 1)) * MS
    drifting = union((int(start), int(start) + MS) for start in starts)
    steps = seen(timeline(drifting, every_step(1, 4)), recording())
    assert steps.standard_error_ms > 0.5
    assert steps.p95_ms > steps.median_ms


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_steps_are_no_steps(count: int) -> None:
    assert steps_of(timeline(every_step(0, 1, count), every_step(1, 4)), recording()) is None


def test_six_dispatches_make_five_steps() -> None:
    assert seen(timeline(every_step(0, 1, 6), every_step(1, 4)), recording()).count == 5


def test_no_steps_without_a_window() -> None:
    run = Recording(start_ns=0)
    assert steps_of(timeline(DISPATCHES, every_step(1, 4)), run) is None


def test_no_steps_without_dispatches() -> None:
    assert steps_of(timeline({}, every_step(1, 4)), recording()) is None


def test_writing_logs_and_checkpoints_is_told_from_the_rest() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 4)), recording(SAVING))
    assert steps.exposed_logging_ms == pytest.approx(6.0)
    assert steps.exposed_etl_ms == steps.exposed_other_ms == 0.0
    (place,) = steps.logging_places
    assert (place.file, place.line, place.function) == SAVE
    assert place.share == pytest.approx(0.9)
    assert parts_together_ms(steps) == pytest.approx(10.0)


def test_a_function_called_once_makes_no_steps() -> None:
    assert (
        steps_of(timeline({"evaluate": every_step(0, 9, 1)}, every_step(1, 4)), recording()) is None
    )


def executable(name: str, moved: float | None) -> ExecutableRecord:
    """XLA's account of a program that moves so many bytes."""
    return ExecutableRecord(
        name=name,
        flops=None,
        bytes_accessed=moved,
        argument_bytes=0,
        output_bytes=0,
        alias_bytes=0,
        temp_bytes=0,
    )


def test_the_function_that_takes_most_of_the_dispatching_makes_the_steps() -> None:
    assert step_function({"add": 1.0, "step": 3.0, "log": 2.0}) == "step"
    assert step_function({}) is None


def test_what_the_program_has_jitted_makes_the_steps_rather_than_a_function_of_jax() -> None:
    weights = {"stage": 8.0, "step": 3.0, "log": 2.0}
    assert step_function(weights, ["log", "step"]) == "step"
    assert step_function(weights, ["other"]) == "stage"
    assert step_function({"stage": 8.0, "step": 0.0}, ["step"]) == "stage"


def test_what_xla_says_that_a_function_moves_counts_more_than_its_dispatches() -> None:
    calls = {"step": every_step(0, 1, COUNT + 1), "augment": every_step(2, 9, COUNT + 1)}
    by_time = seen(timeline(calls, every_step(1, 4)), recording())
    assert by_time.function == "augment"
    assert by_time.work == pytest.approx({"augment": 7 / 8, "step": 1 / 8})
    run = recording()
    run.executables = [executable("jit_step", 300.0), executable("jit_augment", 100.0)]
    by_bytes = seen(timeline(calls, every_step(1, 4)), run)
    assert by_bytes.function == "step"
    assert by_bytes.work == pytest.approx({"step": 0.75, "augment": 0.25})


def test_of_a_function_with_several_shapes_the_mean_counts() -> None:
    calls = timeline({"step": DISPATCHES, "log": DISPATCHES}, every_step(1, 4))
    run = recording()
    several = [executable("jit_step", moved) for moved in (100.0, 300.0, None)]
    run.executables = [*several, executable("jit_log", 50.0)]
    assert weights_of(calls, run) == pytest.approx({"step": 400 / 3 * 21, "log": 50.0 * 21})


def accumulated(micro: int, count: int, evaluations: Iterable[int] = ()) -> dict[str, Intervals]:
    """Steps of so many calls of `grad`, 10 ms each, and one of `apply`, which takes 5 ms more."""
    length = 10 * micro + 5
    starts = [length * step for step in range(count)]
    calls = [start + 10 * number for start in starts for number in range(micro)]
    applied = [start + 10 * micro for start in starts]
    spans = {"grad": calls, "apply": applied, "evaluate": [starts[n] + 1 for n in evaluations]}
    return {
        name: union((at * MS, at * MS + MS) for at in instants)
        for name, instants in spans.items()
        if instants
    }


@given(micro=st.integers(1, 12), count=st.integers(7, 40))
def test_accumulated_gradients_are_one_step(micro: int, count: int) -> None:
    run = recording()
    run.executables = [executable("jit_grad", 100.0), executable("jit_apply", 100.0 * micro)]
    steps = seen(timeline(accumulated(micro, count), every_step(1, 4)), run)
    assert steps.count == count - 1
    assert steps.time_ms == pytest.approx(10 * micro + 5)
    assert steps.calls == {"grad": micro, "apply": 1.0}


def test_an_evaluation_now_and_then_is_no_part_of_the_step() -> None:
    run = recording()
    names = ("grad", "apply", "evaluate")
    run.executables = [executable(f"jit_{name}", 100.0) for name in names]
    steps = seen(timeline(accumulated(4, 30, evaluations=[9, 19]), every_step(1, 4)), run)
    assert steps.time_ms == pytest.approx(45.0)
    assert steps.calls == pytest.approx({"grad": 4.0, "apply": 1.0, "evaluate": 2 / 29})


def test_where_nothing_repeats_each_call_of_the_function_is_a_step() -> None:
    odd = np.cumsum([1, 5, 2, 9, 4, 7, 1, 3, 8, 2, 6, 5]) * 4
    calls = {
        "step": union((10 * n * MS, (10 * n + 3) * MS) for n in range(30)),
        "odd": union((int(at) * MS + 5 * MS, int(at) * MS + 7 * MS) for at in odd),
    }
    steps = seen(timeline(calls, every_step(1, 4)), recording())
    assert (steps.function, steps.count) == ("step", 29)


def test_the_programs_own_marks_make_the_steps() -> None:
    marks = union((30 * n * MS, (30 * n + 29) * MS) for n in range(8))
    steps = seen(timeline(DISPATCHES, every_step(1, 4), annotated=marks), recording())
    assert (steps.count, steps.time_ms) == (7, 30.0)
    assert steps.function == "step"


def test_too_few_marks_are_no_steps() -> None:
    marks = union((50 * n * MS, (50 * n + 29) * MS) for n in range(4))
    steps = seen(timeline(DISPATCHES, every_step(1, 4), annotated=marks), recording())
    assert (steps.count, steps.time_ms) == (COUNT, 10.0)


def slowed(*longer: int) -> Steps:
    """Steps of 10 ms, but for some that take 100 ms."""
    lengths = [100 if number in longer else 10 for number in range(COUNT)]
    starts = np.cumsum([0, *lengths]) * MS
    calls = union((int(start), int(start) + MS) for start in starts)
    return seen(timeline(calls, every_step(1, 4)), recording())


def test_steps_that_take_far_longer_than_most_are_counted() -> None:
    steps = slowed(4, 11)
    assert steps.outliers == 2
    assert steps.outlier_share == pytest.approx(200 / 380)
    assert steps.median_ms == 10.0


def test_even_steps_have_no_outliers() -> None:
    steps = slowed()
    assert (steps.outliers, steps.outlier_share) == (0, 0.0)


def test_op_by_op_no_operation_is_the_step_to_which_the_code_leads() -> None:
    calls = {f"op_{n}": every_step(n / 2, n / 2 + 0.2) for n in range(OP_BY_OP + 3)}
    found = code_of(timeline(calls, every_step(1, 4)), "op_3", recording(), COUNT)
    assert found.way == {}
    led = code_of(timeline(DISPATCHES, every_step(1, 4)), "step", recording(LOADING), COUNT)
    assert led.way == {(TRAIN[0], TRAIN[2]): {TRAIN[1]}}


def test_where_the_step_compiled_shows_the_way_to_it_too() -> None:
    run = recording(LOADING)
    run.samples = []
    run.calls = {"step": [[("/x/site-packages/jax/_src/pjit.py", 3, "f"), TRAIN]], "log": [[SAVE]]}
    found = code_of(timeline(DISPATCHES, every_step(1, 4)), "step", run, COUNT)
    assert found.way == {(TRAIN[0], TRAIN[2]): {TRAIN[1]}}


def test_of_many_jitted_calls_that_were_probed_it_is_known_from_where_they_are_made() -> None:
    calls = {"step": DISPATCHES} | {f"step_{n}": every_step(1, 2) for n in range(OP_BY_OP)}
    run = recording(LOADING)
    run.calls = {"step": [[SAVE]]}
    assert code_of(timeline(calls, every_step(1, 4)), "step", run, COUNT).way == {}
    run.step_calls = StepCalls(calls=(called("step"),), time_ms=10.0, steps=24)
    found = code_of(timeline(calls, every_step(1, 4)), "step", run, COUNT)
    assert found.way == {(SAVE[0], SAVE[2]): {SAVE[1]}}, "and not by the samples"
    assert found.seen == run.stacks, "which may be of operations, too"


def test_a_line_that_was_sampled_as_the_call_ended_is_not_on_the_way() -> None:
    after = (TRAIN[0], TRAIN[1] + 2, TRAIN[2])
    run = recording()
    run.stacks = [[TRAIN], [after]]
    run.samples = [(round((10 * n + 0.5) * MS), int(n == 7)) for n in range(COUNT)]
    found = code_of(timeline(DISPATCHES, every_step(1, 4)), "step", run, COUNT)
    assert found.way == {(TRAIN[0], TRAIN[2]): {TRAIN[1]}}


def test_the_window_is_placed_in_the_run() -> None:
    run = recording()
    run.start_ns = -2_000 * MS
    steps = seen(timeline(DISPATCHES, every_step(1, 4)), run)
    assert (steps.began_s, steps.window_s) == (2.0, 0.21)


def test_waits_are_counted_in_the_steps_that_count() -> None:
    waits = union([*every_step(1, 2).tolist(), *every_step(3, 4).tolist()])
    steps = seen(timeline(DISPATCHES, every_step(1, 9), waits), recording())
    assert steps.waits == 2.0


def test_waits_outside_of_the_steps_do_not_count() -> None:
    late = [(300 * MS, 301 * MS)]
    assert seen(timeline(DISPATCHES, every_step(1, 9), late), recording()).waits == 0.0


def test_uploads_are_counted_and_copies_timed() -> None:
    twice = np.concatenate([every_step(0.1, 0.3), every_step(0.2, 0.5)])
    more = {"uploads": twice, "copies": union([*every_step(0.1, 0.5), *every_step(2, 4)])}
    steps = seen(timeline(DISPATCHES, every_step(1, 9), **more), recording())
    assert steps.uploads == 2.0
    assert steps.upload_ms == pytest.approx(2.4)


def test_callbacks_are_counted_one_by_one_and_their_time_once() -> None:
    both = np.concatenate([every_step(2, 5), every_step(3, 6)])
    steps = seen(timeline(DISPATCHES, every_step(1, 9), callbacks=both), recording())
    assert steps.callbacks == 2.0
    assert steps.callback_ms == pytest.approx(4.0)


def test_where_nothing_is_copied_or_called_back_nothing_is_counted() -> None:
    steps = seen(timeline(DISPATCHES, every_step(1, 9)), recording())
    assert (steps.uploads, steps.upload_ms, steps.callbacks, steps.callback_ms) == (0, 0, 0, 0)
    assert steps.busy_shares == ()


def test_each_device_has_its_share_of_the_time() -> None:
    devices = (every_step(0, 8), every_step(0, 2))
    run = recording()
    run.devices = 2
    steps = seen(timeline(DISPATCHES, every_step(0, 8), busy_by_device=devices), run)
    assert steps.busy_shares == pytest.approx((0.8, 0.2))


def test_devices_that_the_trace_does_not_show_were_idle() -> None:
    run = recording()
    run.devices = 4
    steps = seen(timeline(DISPATCHES, every_step(0, 8), busy_by_device=(every_step(0, 8),)), run)
    assert steps.busy_shares == pytest.approx((0.8, 0.0, 0.0, 0.0))


def served(*threads: Intervals, waits: Iterable[tuple[int, int]] | Intervals = ()) -> Steps:
    """Of a program whose threads each make these calls."""
    calls = tuple({"predict": each} for each in threads)
    return seen(timeline(calls[0], every_step(1, 9), waits, by_thread=calls), recording())


def test_one_thread_makes_the_steps_by_itself() -> None:
    steps = served(DISPATCHES)
    assert (steps.threads, steps.call_ms, steps.time_ms) == (1, 0.0, 10.0)


def test_the_calls_of_all_threads_are_steps() -> None:
    steps = served(DISPATCHES, every_step(5, 6, COUNT + 1))
    assert steps.threads == 2
    assert steps.count == 2 * COUNT + 1
    assert steps.time_ms == pytest.approx(5.0)
    assert steps.call_ms == pytest.approx(10.0)


def test_calls_at_the_same_instant_do_not_break_it() -> None:
    steps = served(DISPATCHES, DISPATCHES, DISPATCHES)
    assert steps.threads == 3
    assert steps.time_ms == pytest.approx(200 / 62)


def test_a_thread_that_calls_now_and_then_is_no_other_caller() -> None:
    steps = served(DISPATCHES, every_step(5, 6, 1))
    assert (steps.threads, steps.count) == (1, COUNT)


def test_a_burst_of_waits_does_not_choose_the_steps() -> None:
    calls = every_step(0, 1, 201)
    assert served(calls, waits=every_step(1, 9, 6)).count == 200 - 1 - RUN_AHEAD


def called_ahead(begin_ms: int, count: int) -> list[tuple[int, int]]:
    """Calls of steps of 10 ms from a rest on: at once as long as that is possible, then each when
    one is computed.
    """
    begins = [begin_ms * MS + max(2 * n, 10 * MS * (n - RUN_AHEAD)) for n in range(count)]
    return [(begin, begin + 1) for begin in begins]


@pytest.mark.parametrize("count", [10, 100])
def test_after_the_last_wait_those_that_get_ahead_do_not_count(count: int) -> None:
    calls = [(0, MS), *called_ahead(400, RUN_AHEAD + 1 + count)]
    evaluation = [(6 * MS, 10 * MS), (390 * MS, 400 * MS)]
    steps = seen(timeline(union(calls), union([(0, 2000 * MS)]), evaluation), recording())
    assert steps.count == count
    assert steps.time_ms == pytest.approx(10.0)


def test_before_the_first_wait_the_step_that_catches_up_does_not_count() -> None:
    calls = [*every_step(0, 1, 101).tolist(), *called_ahead(1325, 20)]
    wait = [(1002 * MS, 1320 * MS)]
    steps = seen(timeline(union(calls), union([(0, 2000 * MS)]), wait), recording())
    assert steps.count == 100
    assert steps.time_ms == pytest.approx(10.0)


def test_a_burst_alone_tells_nothing() -> None:
    calls = union([(-50 * MS, -49 * MS), *called_ahead(0, 20)])
    assert steps_of(timeline(calls, NOTHING, [(-48 * MS, -2 * MS)]), recording()) is None


def test_of_steps_of_several_calls_fewer_are_called_ahead() -> None:
    starts = np.arange(101) * 10
    wait = union([(5, 8)])
    assert len(fair_sample(starts, wait, 1.0)) == 99 - RUN_AHEAD
    assert len(fair_sample(starts, wait, 4.0)) == 99 - RUN_AHEAD / 4
    assert len(fair_sample(starts, NOTHING, 4.0)) == 100


def test_waits_of_one_of_several_threads_do_not_choose_the_steps() -> None:
    waits = every_step(1, 9, 16)
    assert served(DISPATCHES, waits=waits).count < COUNT
    assert served(DISPATCHES, every_step(5, 6, COUNT + 1), waits=waits).count == 2 * COUNT + 1


@given(
    threads=st.lists(
        st.lists(st.integers(0, 200), min_size=7, max_size=20, unique=True), min_size=2
    )
)
def test_steps_of_threads_fill_the_time_from_the_first_call_to_the_last(
    threads: list[list[int]],
) -> None:
    calls = [union((start * MS, start * MS + 1) for start in starts) for starts in threads]
    steps = served(*calls)
    counted = [each for each in calls if len(each) >= 0.1 * max(map(len, calls))]
    assert steps.threads == len(counted)
    first, last = min(each[0, 0] for each in counted), max(each[-1, 0] for each in counted)
    assert steps.time_ms * steps.count == pytest.approx((last - first) / MS)


SPANS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=12)


@st.composite
def dispatch_calls(draw: st.DrawFn) -> dict[str, Intervals]:
    lengths = draw(st.lists(st.integers(2, 40), min_size=10, max_size=16))
    starts = np.cumsum(lengths)
    spans = [(int(s), int(s) + draw(st.integers(1, n - 1))) for s, n in zip(starts, lengths[1:])]  # noqa: B905
    return {"step": thousandfold(spans), "other": thousandfold(draw(SPANS))}


def thousandfold(pairs: Pairs) -> Intervals:
    return union((1000 * start, 1000 * end) for start, end in pairs)


@settings(deadline=None)
@given(
    calls=dispatch_calls(),
    waits=SPANS,
    ahead=st.integers(0, 2),
    busy=SPANS,
    collections=SPANS,
    samples=st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 2)), max_size=50),
)
def test_the_parts_of_a_step_add_up_to_its_time(
    calls: dict[str, Intervals],
    waits: Pairs,
    ahead: int,
    busy: Pairs,
    collections: Pairs,
    samples: list[tuple[int, int]],
) -> None:
    run = recording(collections=[(1000 * start, 1000 * end) for start, end in collections])
    run.stacks, run.samples = [TRAINING, LOADING, SAVING], samples
    with patch("perfdoctor.observe.digest.sample.RUN_AHEAD", ahead):
        steps = steps_of(timeline(calls, thousandfold(busy), thousandfold(waits)), run)
    assume(steps is not None)
    assert steps is not None
    assert parts_together_ms(steps) == pytest.approx(steps.time_ms)
    assert steps.device_busy_ms >= 0
    assert min(steps.exposed_etl_ms, steps.exposed_dispatch_ms, steps.exposed_wait_ms) >= 0
    assert min(steps.exposed_gc_ms, steps.exposed_logging_ms, steps.exposed_other_ms) >= -1e-12
