"""Profiles of XLA, as they are read."""

import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest.events import OPERATION_END, Thread, thread_of, together
from perfdoctor.observe.digest.intervals import NOTHING, complement, total_ms, union
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.observe.digest.xplane import (
    AWAIT,
    BEGIN,
    END,
    computing,
    count_dispatches,
    dispatches_in,
    dispatches_of,
    long_ones,
    profile_start_ns,
    read,
    regions,
    step_marks,
    waits_of,
)
from tests.observe.digest.made_up import event, thread

TRACED = """
import sys, threading
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(weights, inputs):
    mean = jnp.tanh(inputs @ weights).mean()
    return weights + jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((), mean.dtype), mean)

@jax.jit
def predict(weights, inputs):
    return jnp.tanh(inputs @ weights)

def train(steps):
    state = weights
    for number in range(steps):
        with jax.profiler.StepTraceAnnotation("my step", step_num=number):
            state = step(state, inputs)
        with jax.profiler.TraceAnnotation("no step"):
            pass
    heavy(large).block_until_ready()

def serve(held, requests):
    both.wait()
    for _ in range(requests):
        predict(held, held).block_until_ready()
    both.wait()

@jax.jit
def heavy(x):
    return x @ x @ x @ x

weights, inputs = jnp.ones((64, 64)), np.ones((8, 64), np.float32)
large = jnp.ones((1000, 1000))
far = jax.device_put(weights, jax.devices()[1])
both = threading.Barrier(2)
train(1)
predict(weights, weights)
predict(far, far)
options = jax.profiler.ProfileOptions()
options.host_tracer_level, options.python_tracer_level = 1, 0
jax.profiler.start_trace(sys.argv[1], profiler_options=options)
threads = [threading.Thread(target=serve, args=each) for each in ((weights, 12), (far, 7))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
train(20)
jax.profiler.stop_trace()
"""
EVENTS = thread(
    ("PjitFunction(step)", 10, 20),
    ("PjitFunction(step)", 12, 18),
    ("PjitFunction(step)", 30, 40),
    ("PjitFunction(<lambda>)", 50, 55),
    ("np.asarray(jax.Array)", 60, 90),
    ("BlockUntilReady", 80, 95),
    ("Await", 99, 100),
    ("ParseArguments", 10, 11),
)


def plane(name: str, **stats: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, stats=list(stats.items()))


def test_the_profile_start_is_found_by_its_plane() -> None:
    planes = [plane("/host:CPU"), plane("Task Environment", profile_start_time=17, other=3)]
    assert profile_start_ns(planes) == 17


def test_a_profile_without_a_start_counts_from_zero() -> None:
    assert profile_start_ns([plane("/host:CPU")]) == 0


def test_dispatches_are_counted() -> None:
    assert count_dispatches(EVENTS) == 4
    assert count_dispatches(thread()) == 0


def test_the_thread_that_calls_the_functions_of_a_step_trains() -> None:
    """A loader that makes arrays of jax calls some, too."""
    loader = thread(*(("PjitFunction(stage)", 2 * n, 2 * n + 1) for n in range(4)))
    trainer = thread(("PjitFunction(update)", 1, 2), ("PjitFunction(update)", 5, 6))
    assert max([loader, trainer], key=partial(dispatches_in, ())) is loader
    assert max([loader, trainer], key=partial(dispatches_in, ("update",))) is trainer
    assert max([loader, trainer], key=partial(dispatches_in, ("unknown",))) is loader


def test_dispatches_by_function() -> None:
    found = dispatches_of(EVENTS)
    assert set(found) == {"step", "<lambda>"}
    assert found["<lambda>"].tolist() == [[50, 55]]


def test_a_call_listed_twice_is_counted_once() -> None:
    assert dispatches_of(EVENTS)["step"].tolist() == [[10, 20], [30, 40]]


def test_waits_that_overlap_are_one() -> None:
    assert waits_of(NOTHING, EVENTS).tolist() == [[60, 95], [99, 100]]


def test_no_waits_where_the_host_never_waits() -> None:
    assert waits_of(BUSY, thread(("PjitFunction(step)", 10, 20))).shape == (0, 2)


def awaiting(*instants: int, then: int | None = None) -> Thread:
    """A thread that begins to wait at these instants; the trace does not say how long."""
    events = [(AWAIT, instant, instant) for instant in instants]
    after = [] if then is None else [("PjitFunction(step)", then, then + 1)]
    return thread(*events, *after)


BUSY = union([(10, 50), (60, 70)])


def test_a_wait_without_length_ends_with_what_is_computed() -> None:
    assert waits_of(BUSY, awaiting(20)).tolist() == [[20, 50]]
    assert waits_of(BUSY, awaiting(65)).tolist() == [[65, 70]]


def test_a_wait_without_length_ends_at_the_latest_where_the_thread_goes_on() -> None:
    assert waits_of(BUSY, awaiting(20, then=30)).tolist() == [[20, 30]]
    assert waits_of(BUSY, awaiting(20, 40)).tolist() == [[20, 50]]


def test_a_wait_for_what_is_ready_is_none() -> None:
    assert waits_of(BUSY, awaiting(5, 55, 80)).tolist() == []


INSTANTS = st.integers(0, 100)


@given(st.lists(INSTANTS), st.lists(st.tuples(INSTANTS, INSTANTS)), INSTANTS)
def test_waits_lie_where_something_is_computed(
    begins: list[int], spans: list[tuple[int, int]], then: int
) -> None:
    busy = union(spans)
    waits = waits_of(busy, awaiting(*begins, then=then))
    assert total_ms(complement(busy, waits)) == 0


def test_a_region_goes_from_a_begin_to_the_next_end() -> None:
    events = [(END, 1, 1), (BEGIN, 5, 5), ("dot.1", 6, 7), (END, 9, 9), (END, 10, 10)]
    assert regions(thread(*events)).tolist() == [[5, 9]]


def test_of_two_begins_the_later_one_counts() -> None:
    events = [(BEGIN, 5, 5), (BEGIN, 6, 6), (END, 9, 9), (BEGIN, 12, 12)]
    assert regions(thread(*events)).tolist() == [[6, 9]]


@given(st.lists(st.tuples(st.sampled_from([BEGIN, END, "other"]), INSTANTS)))
def test_regions_are_apart_whatever_the_events(events: list[tuple[str, int]]) -> None:
    found = regions(thread(*((name, at, at) for name, at in events))).tolist()
    assert all(begin <= end for begin, end in found)
    assert all(before[1] <= after[0] for before, after in pairwise(found))


def computed(*threads: list[SimpleNamespace]) -> dict[int, list[list[int]]]:
    """When the devices computed, by the events of these threads."""
    found = computing([thread_of(events, 0) for events in threads])
    computed = {device: union(together(spans)).tolist() for device, spans in found.items()}
    return {device: spans for device, spans in computed.items() if spans}


def task(begin: int, end: int, *inside: SimpleNamespace) -> list[SimpleNamespace]:
    return [event(BEGIN, begin, begin), *inside, event(END, end, end)]


def execution(at: int, device: int = 0) -> SimpleNamespace:
    return event("ThunkExecutor::Execute (inline)", at, at, device_ordinal=device)


def test_a_task_that_runs_a_program_computes() -> None:
    assert computed(task(10, 30, execution(12))) == {0: [[10, 30]]}


def test_a_task_that_runs_none_does_not() -> None:
    assert computed(task(10, 30, event("Other", 12, 20))) == {}


def test_operations_compute_wherever_they_run() -> None:
    operations = [event("dot.1", 12, 20), event("end: dot.1", 20, 20)]
    assert computed(operations) == {0: [[12, 20]]}


def test_a_task_computes_from_its_first_operation_on() -> None:
    operations = [event("dot.1", 14, 20), event("end: dot.1", 20, 20)]
    assert computed(task(10, 30, execution(12), *operations)) == {0: [[14, 30]]}


def test_each_device_computes_by_itself() -> None:
    one, other = task(10, 30, execution(12, 0)), task(20, 40, execution(22, 1))
    assert computed(one, other) == {0: [[10, 30]], 1: [[20, 40]]}


def test_a_program_marks_its_steps_by_their_numbers() -> None:
    events = [event("train", 0, 1, step_num=0), event("train", 1, 2, step_num=1)]
    events += [event("load", 0, 1, rows=3), event(OPERATION_END + "dot", 1, 1)]
    assert step_marks(thread_of(events, 0)) == {"train"}
    assert step_marks(thread()) == set()


@pytest.mark.parametrize("name", ["trace", "absent"])
def test_no_timeline_without_a_profile(tmp_path: Path, name: str) -> None:
    (tmp_path / "trace").mkdir()
    assert read(tmp_path / name) is None


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """Of a real run: 20 steps in the main thread, 12 and 7 calls in others, two devices."""
    folder = tmp_path_factory.mktemp("trace")
    subprocess.run(
        [sys.executable, "-c", TRACED, str(folder)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        check=True,
    )
    found = read(folder)
    assert found is not None
    return found


def test_the_main_thread_is_the_one_that_calls_most(traced: Timeline) -> None:
    found = {name: len(spans) for name, spans in traced.dispatches.items()}
    assert found == {"step": 20, "heavy": 1}


def test_each_thread_has_its_own_calls(traced: Timeline) -> None:
    calls = [{name: len(spans) for name, spans in each.items()} for each in traced.by_thread]
    assert calls == [{"step": 20, "heavy": 1}, {"predict": 12}, {"predict": 7}]


def test_runs_of_a_program_are_numbered_one_after_another(traced: Timeline) -> None:
    if not traced.runs:
        pytest.skip("jax 0.8 tells of no operations")
    of_step = {each: runs for each, runs in traced.runs.items() if each.module == "jit_step"}
    (once, *_) = sorted(of_step, key=lambda each: of_step[each].events)
    first, last, events = of_step[once]
    assert (last.number - first.number, events) == (19, 20)
    assert first.begin_ns < last.begin_ns


def test_the_programs_own_marks_are_its_steps(traced: Timeline) -> None:
    calls, marks = traced.dispatches["step"], traced.annotated
    assert len(marks) == 20
    assert (marks[:, 0] <= calls[:, 0]).all() and (calls[:, 1] <= marks[:, 1]).all()


def test_the_end_of_the_run_is_waited_for(traced: Timeline) -> None:
    ends = traced.waits[:, 1]
    assert not len(ends) or ends[-1] > traced.dispatches["heavy"][0, 0]  # jax 0.8 tells of none


def test_a_host_array_in_each_call_is_an_upload(traced: Timeline) -> None:
    assert len(traced.uploads) == 20
    calls = traced.dispatches["step"]
    assert np.all(np.searchsorted(calls[:, 0], traced.uploads[:, 0], side="right") > 0)


def test_long_copies_are_those_of_the_largest_array() -> None:
    """A batch in each step, and a large table in two of them."""
    batches, tables = [(10 * n, 10 * n + 1) for n in range(5)], [(50, 90), (100, 115)]
    assert long_ones(np.asarray([*batches, *tables])).tolist() == [[50, 90], [100, 115]]
    assert long_ones(NOTHING).tolist() == []


def test_copies_take_their_time(traced: Timeline) -> None:
    assert total_ms(traced.copies) >= total_ms(union(traced.uploads)) > 0


def test_each_callback_is_seen(traced: Timeline) -> None:
    assert len(traced.callbacks) in (0, 20)  # XLA's trace tells of them since jax 0.9 or so


def test_each_device_has_its_own_busy_time(traced: Timeline) -> None:
    assert len(traced.busy_by_device) == 2
    first, second = (total_ms(busy) for busy in traced.busy_by_device)
    assert first > 0 and second > 0
    assert max(first, second) <= total_ms(traced.busy) <= first + second + 1e-6  # sums of floats


def test_the_runs_of_a_program_begin_one_after_another(traced: Timeline) -> None:
    if not traced.runs:
        pytest.skip("jax 0.8 tells of no operations")
    begins = traced.run_begins["jit_step"]
    assert len(begins) > 1 and (np.diff(begins) > 0).all()
