import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest.intervals import NOTHING, total_ms, union
from perfdoctor.observe.digest.timeline import (
    Timeline,
    count_dispatches,
    dispatches_of,
    each,
    ordinal,
    pairs_of,
    profile_start_ns,
    read,
    span,
    waits_of,
    without_tracing,
)

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
    for _ in range(steps):
        state = step(state, inputs)
    state.block_until_ready()

def serve(held, requests):
    both.wait()
    for _ in range(requests):
        predict(held, held).block_until_ready()
    both.wait()

weights, inputs = jnp.ones((64, 64)), np.ones((8, 64), np.float32)
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


def test_events_of_a_name_are_kept_one_by_one() -> None:
    events = [("DevicePut", 12, 18), ("Other", 0, 1), ("DevicePut", 10, 20)]
    assert each(events, "DevicePut").tolist() == [[10, 20], [12, 18]]
    assert each(events, "H2D Dispatch").shape == (0, 2)


PAIRS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)))


@given(PAIRS)
def test_pairs_are_sorted_and_none_is_lost(pairs: list[tuple[int, int]]) -> None:
    found = pairs_of(iter(pairs))
    assert found.shape == (len(pairs), 2)
    assert [tuple(pair) for pair in found.tolist()] == sorted(pairs)


def test_an_execution_tells_its_device() -> None:
    event = SimpleNamespace(stats=[("device_ordinal", 3), ("other", 1)])
    assert ordinal(event) == 3
    assert ordinal(SimpleNamespace(stats=[])) == 0


def test_calls_that_were_made_while_tracing_are_no_dispatches() -> None:
    calls = {"step": union([(0, 5), (20, 25)]), "helper": union([(11, 12)])}
    seen = Timeline(dispatches=calls, waits=NOTHING, busy=NOTHING, by_thread=(calls,))
    kept = without_tracing(seen, union([(10, 15)]))
    assert {name: spans.tolist() for name, spans in kept.dispatches.items()} == {
        "step": [[0, 5], [20, 25]]
    }
    assert list(kept.by_thread[0]) == ["step"]


def test_without_tracing_nothing_is_taken_away() -> None:
    calls = dispatches_of(EVENTS)
    seen = Timeline(dispatches=calls, waits=NOTHING, busy=NOTHING, by_thread=(calls,))
    assert list(without_tracing(seen, NOTHING).dispatches) == list(calls)


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
    assert {name: len(spans) for name, spans in traced.dispatches.items()} == {"step": 20}


def test_each_thread_has_its_own_calls(traced: Timeline) -> None:
    calls = [{name: len(spans) for name, spans in each.items()} for each in traced.by_thread]
    assert calls == [{"step": 20}, {"predict": 12}, {"predict": 7}]


def test_a_host_array_in_each_call_is_an_upload(traced: Timeline) -> None:
    assert len(traced.uploads) == 20
    calls = traced.dispatches["step"]
    assert np.all(np.searchsorted(calls[:, 0], traced.uploads[:, 0], side="right") > 0)


def test_copies_take_their_time(traced: Timeline) -> None:
    assert total_ms(traced.copies) >= total_ms(union(traced.uploads)) > 0


def test_each_callback_is_seen(traced: Timeline) -> None:
    assert len(traced.callbacks) in (0, 20)  # XLA's trace tells of them since jax 0.9 or so


def test_each_device_has_its_own_busy_time(traced: Timeline) -> None:
    assert len(traced.busy_by_device) == 2
    first, second = (total_ms(busy) for busy in traced.busy_by_device)
    assert first > 0 and second > 0
    assert total_ms(traced.busy) == pytest.approx(first + second)
