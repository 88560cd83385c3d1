from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.memory import DeviceMemory, LiveArrays, Memory, MemorySample
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Place
from perfdoctor.schema.surroundings import Gpu, GpuProcess
from perfdoctor_checks import memory
from perfdoctor_checks._growth import rises
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

MIB, GIB = 2**20, 2**30
STEADY = (5, 5, 6, 5, 6, 5)


def sampled(
    counts: tuple[int, ...], each: int = MIB, rss: tuple[int, ...] = (), **parts: Any
) -> Observation:
    """The healthy run, as if so many arrays had lived at instants half a second apart."""
    seen = recorded("healthy")
    assert seen.memory is not None
    samples = tuple(
        MemorySample(at_s=n / 2, rss_bytes=rss[n] if rss else GIB, array_bytes=count * each)
        for n, count in enumerate(counts)
    )
    arrays = (LiveArrays(shape=(512, 512), dtype="float32", counts=counts, bytes_each=each),)
    fields = {"samples": samples, "arrays": arrays, "available_bytes": 8 * GIB} | parts
    return replace(seen, memory=replace(seen.memory, **fields))


def trained(seen: Observation, steps: int, time_ms: float = 10.0, keep: int = 10) -> Observation:
    """The same, of a workload with so many steps that keeps parameters."""
    assert seen.target.workload is not None and seen.steps is not None
    training = replace(seen.target.workload.training, steps=steps, keep_every=keep)
    workload = replace(seen.target.workload, training=training)
    timed = replace(seen.steps, time_ms=time_ms, began_s=10.0, window_s=3.0)
    return replace(seen, target=replace(seen.target, workload=workload), steps=timed)


def script(seen: Observation) -> Observation:
    """The same, of an unchanged script."""
    return replace(seen, target=replace(seen.target, kind="script", workload=None))


def on_device(**fields: Any) -> Observation:
    """The healthy run, as if it had filled a GPU's memory so far; made by hand."""
    device = DeviceMemory(
        in_use_bytes=GIB, peak_bytes=GIB, limit_bytes=100 * GIB, largest_free_bytes=None,
        pool_bytes=None,
    )  # fmt: skip
    return sampled(STEADY, devices=(replace(device, **fields),))


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_where_memory_suffices(name: str) -> None:
    assert memory.check(recorded(name)).kind == "ok"


@pytest.mark.parametrize(
    "counts",
    [
        STEADY,
        (5, 5, 5, 9, 9, 9),
        (5, 6, 7),
        (5, 6, 7, 8, 8, 8, 8, 8, 8),
        (1, 2, 3, 4, 5, 4),
        (5, 5, 5, 5),
        (),
    ],
)
def test_arrays_that_come_and_go_or_come_once_are_no_leak(counts: tuple[int, ...]) -> None:
    assert memory.check(sampled(counts)).kind == "ok"


def test_a_leak_beside_arrays_on_their_way_through_a_step_is_one() -> None:
    assert rises((23, 29, 33, 34, 38, 37, 39))
    assert not rises((23, 29, 26, 30, 28, 33, 31))


def test_a_leak_that_ends_memory_before_the_run_keeps_it_from_running() -> None:
    seen = trained(sampled((1, 101, 201, 301, 401, 501)), steps=100_000)
    outcome = memory.check(seen)
    assert outcome.kind == "issue" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.summary == (
        "arrays (most: float32[512,512], 1 to 501 of them) grow by 200.0 MiB in 100 steps: "
        "memory ends in 41 s"
    )
    assert [fix.how for fix in outcome.fixes] == ["[training] keep_every = 0"]
    assert outcome.fixes[0].change is None


def test_a_leak_in_a_run_that_ends_before_is_a_hint() -> None:
    seen = trained(sampled((1, 101, 201, 301, 401, 501)), steps=5_000)
    outcome = memory.check(seen)
    assert outcome.kind == "hint"
    assert_sound(outcome, seen)


def test_arrays_that_grow_and_are_not_the_kept_parameters_are_to_be_dropped() -> None:
    seen = trained(sampled((1, 101, 201, 301)), steps=100_000, keep=0)
    outcome = memory.check(seen)
    assert_sound(outcome, seen)
    assert "(512, 512)" in outcome.fixes[0].summary and "del" in outcome.fixes[0].how


def test_a_script_that_ends_memory_within_an_hour_is_an_issue() -> None:
    fast = script(sampled((1, 11, 21, 31, 41, 51)))
    outcome = memory.check(fast)
    assert outcome.kind == "issue" and outcome.gain is None
    assert_sound(outcome, fast)
    assert outcome.fixes[0].change is None
    slow = script(sampled((1, 5, 9, 13, 17, 21), each=MIB // 4, available_bytes=8 * GIB))
    assert slow.steps is not None
    slow = replace(slow, steps=replace(slow.steps, time_ms=100.0))
    assert memory.check(slow).kind == "hint"


@pytest.mark.parametrize(("time_ms", "kind"), [(4.0, "ok"), (6.0, "hint")])
def test_growth_counts_from_a_mebibyte_in_100_steps(time_ms: float, kind: str) -> None:
    seen = trained(sampled((1, 2, 3, 4, 5, 6)), steps=1_000, time_ms=time_ms)
    assert memory.check(seen).kind == kind


def test_without_steps_growth_counts_by_the_second() -> None:
    seen = replace(sampled((1, 11, 21, 31)), steps=None)
    outcome = memory.check(seen)
    assert_sound(outcome, seen)
    assert "MiB a second" in outcome.summary
    assert memory.check(replace(sampled((1, 2, 3, 4), each=1024), steps=None)).kind == "ok"


def test_the_sum_of_all_arrays_does_where_shapes_are_not_known() -> None:
    seen = sampled((1, 101, 201, 301), arrays=())
    outcome = memory.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("arrays grow by")


def test_growing_resident_memory_alone_is_the_profilers() -> None:
    rise = tuple(GIB + n * 500 * MIB for n in range(6))
    assert memory.check(sampled(STEADY, rss=rise, available_bytes=2 * GIB)).kind == "ok"


def test_a_host_that_is_nearly_full_is_a_hint() -> None:
    seen = recorded("healthy")
    host = replace(seen.host, memory_bytes=64 * GIB, memory_limit_bytes=10 * GIB)
    full = replace(sampled(STEADY, available_bytes=GIB // 2), host=host)
    outcome = memory.check(full)
    assert_sound(outcome, full)
    assert outcome.summary == "0.50 of 10.0 GiB are left on the host"
    assert memory.check(replace(sampled(STEADY, available_bytes=GIB), host=host)).kind == "ok"


@pytest.mark.parametrize(("peak", "kind"), [(94, "ok"), (95, "hint"), (120, "hint")])
def test_a_device_that_was_nearly_full_is_a_hint(peak: int, kind: str) -> None:
    seen = on_device(peak_bytes=peak * GIB)
    outcome = memory.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert_sound(outcome, seen)


def test_a_leak_is_projected_to_the_devices_memory() -> None:
    device = on_device(in_use_bytes=99 * GIB + GIB // 2).memory
    assert device is not None
    seen = trained(sampled((1, 101, 201, 301), devices=device.devices), steps=5_000)
    assert memory.check(seen).kind == "issue"


def test_a_training_in_swap_is_a_hint() -> None:
    seen = sampled(STEADY, rss_bytes=GIB, swapped_bytes=200 * MIB)
    outcome = memory.check(seen)
    assert_sound(outcome, seen)
    assert "200 MiB" in outcome.summary
    assert memory.check(sampled(STEADY, rss_bytes=GIB, swapped_bytes=20 * MIB)).kind == "ok"


def test_a_pool_that_leaves_others_nothing_is_a_hint() -> None:
    gpu = Gpu(
        index=0,
        name="H100",
        memory_bytes=80 * GIB,
        memory_used_bytes=78 * GIB,
        utilisation_percent=None,
        driver="580",
        cuda_driver_version="13.0",
        processes=(GpuProcess(pid=7, name="python", memory_bytes=None),),
    )
    seen = replace(on_device(), gpus=(gpu,))
    outcome = memory.check(seen)
    assert_sound(outcome, seen)
    assert "python (7)" in outcome.summary
    assert memory.check(replace(seen, gpus=(replace(gpu, processes=()),))).kind == "ok"
    assert memory.check(replace(seen, gpus=(replace(gpu, memory_used_bytes=0),))).kind == "ok"


def test_several_reasons_make_one_finding() -> None:
    seen = trained(sampled((1, 101, 201, 301), swapped_bytes=GIB, rss_bytes=GIB), steps=10**6)
    outcome = memory.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "issue" and len(outcome.fixes) == 2


@given(
    st.lists(st.integers(0, 10**6), max_size=8),
    st.integers(0, 10**12),
    st.floats(0, 1e4),
)
def test_degenerate_numbers_are_answered(counts: list[int], available: int, time_ms: float) -> None:
    seen = trained(sampled(tuple(counts), available_bytes=available), 1000, time_ms)
    assert memory.check(seen).kind in ("ok", "hint", "issue")
    empty = Memory(rss_bytes=0, peak_rss_bytes=0, available_bytes=available)
    assert memory.check(replace(seen, memory=empty)).kind in ("ok", "hint")


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("memory_leak")
    outcome = memory.check(seen)
    assert outcome.kind == "issue" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == "[training] keep_every = 0"


def recomputing(share: float = 0.3, **parts: Any) -> Observation:
    """The healthy run, as if jax.checkpoint had it compute so much again; made by hand."""
    seen = sampled(STEADY, **{"peak_rss_bytes": GIB, "available_bytes": 2 * GIB} | parts)
    assert seen.program is not None
    line = Place(function="block", file="train.py", line=7, share=0.8)
    program = replace(seen.program, recomputed_share=share, recomputed_places=(line,))
    return replace(seen, program=program)


def test_what_is_computed_again_is_tried_without_that_where_memory_is_left() -> None:
    outcome = memory.check(recomputing())
    assert_sound(outcome, recomputing())
    assert outcome.kind == "hint"
    assert "30% of its elements again (most of it in train.py:7)" in outcome.summary
    (fix,) = outcome.fixes
    assert fix.change is not None and fix.change.step == {"program": "kept"}


@pytest.mark.parametrize(
    "seen", [recomputing(share=0.01), recomputing(peak_rss_bytes=3 * GIB)], ids=["little", "full"]
)
def test_what_is_computed_again_is_right_where_it_is_little_or_memory_is_short(
    seen: Observation,
) -> None:
    assert memory.check(seen).kind == "ok"
