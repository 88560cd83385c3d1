"""No machine that throttles was at hand: all ill observations here are made up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.surroundings import Backend, Device, Gpu
from perfdoctor_checks import throttling
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

CUDA = Backend(platform="cuda", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)
HOT = Gpu(
    index=0,
    name="NVIDIA H100",
    memory_bytes=80 * 2**30,
    memory_used_bytes=0,
    utilisation_percent=99,
    driver="580.65",
    cuda_driver_version="13.0",
    clock_mhz=990,
    highest_clock_mhz=1980,
    temperature_c=92,
    throttle_reasons=("sw_thermal_slowdown",),
)


def held(throttled_ms: float | None, own_cores: float = 2.0, **host: Any) -> Observation:
    """The healthy run, made up to be held back by a quota of 2 of 8 cores, over 3 s."""
    seen = recorded("healthy")
    assert seen.load is not None
    load = replace(seen.load, throttled_ms=throttled_ms, own_cores=own_cores, seconds=3.0)
    limits = {"affinity_cores": 8, "quota_cores": 2.0, **host}
    return replace(seen, load=load, host=replace(seen.host, **limits))


def clocked(governor: str | None, mhz: float | None, own_cores: float = 2.0) -> Observation:
    """The healthy run, made up to be on a CPU of 4000 MHz at this clock."""
    seen = held(0.0, own_cores, governor=governor, highest_mhz=4000.0)
    assert seen.load is not None
    return replace(seen, load=replace(seen.load, clock_mhz=mhz))


def on_gpu(gpu: Gpu = HOT, **parts: Any) -> Observation:
    """The healthy run, made up to be on this GPU."""
    return replace(held(0.0), **{"backend": CUDA, "gpus": (gpu,), **parts})


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_where_nothing_is_held_back(name: str) -> None:
    assert throttling.check(recorded(name)).kind == "ok"


def test_finds_a_quota_that_holds_the_training_back() -> None:
    seen = held(18_000.0)
    outcome = throttling.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "the CPU quota of 2 cores" in outcome.summary
    assert "docker run --cpus=8" in outcome.fixes[0].how
    assert outcome.fixes[0].change is None


def test_eight_threads_on_two_cores_could_be_four_times_as_fast() -> None:
    gain = throttling.check(held(18_000.0)).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(4)
    assert gain.low == pytest.approx(4)


def test_one_thread_that_is_held_back_may_lose_all_of_that_time() -> None:
    gain = throttling.check(held(1_500.0, own_cores=0.5)).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(2)
    assert gain.low == pytest.approx(1 / (1 - 0.5 / 8))


def test_a_single_period_that_ended_early_is_no_finding() -> None:
    assert throttling.check(held(200.0)).kind == "ok"
    assert throttling.check(held(None)).kind == "ok"


def test_finds_a_gpu_that_is_too_hot() -> None:
    seen = on_gpu()
    outcome = throttling.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary == "NVIDIA H100 runs at 990 of 1980 MHz: sw_thermal_slowdown"


def test_a_power_limit_may_be_meant() -> None:
    seen = on_gpu(replace(HOT, throttle_reasons=("sw_power_cap",), power_limit_w=350.0))
    outcome = throttling.check(seen)
    assert outcome.kind == "hint" and "350 W" in outcome.fixes[0].summary
    assert_sound(outcome, seen)


@pytest.mark.parametrize(
    "gpu",
    [
        replace(HOT, clock_mhz=1900),
        replace(HOT, throttle_reasons=()),
        replace(HOT, throttle_reasons=("gpu_idle", "applications_clocks_setting")),
        replace(HOT, clock_mhz=None),
        replace(HOT, highest_clock_mhz=None),
    ],
)
def test_a_gpu_that_is_fast_idle_or_silent_is_no_finding(gpu: Gpu) -> None:
    assert throttling.check(on_gpu(gpu)).kind == "ok"


def test_a_gpu_that_jax_does_not_use_is_no_finding() -> None:
    assert throttling.check(on_gpu(backend=recorded("healthy").backend)).kind == "ok"
    assert throttling.check(on_gpu(backend=None)).kind == "ok"
    assert throttling.check(on_gpu(environment={"CUDA_VISIBLE_DEVICES": "1"})).kind == "ok"
    assert throttling.check(on_gpu(environment={"CUDA_VISIBLE_DEVICES": "0,1"})).kind == "issue"


def test_finds_a_governor_that_keeps_the_clock_low() -> None:
    seen = clocked("powersave", 1200.0)
    outcome = throttling.check(seen)
    assert outcome.kind == "hint" and "1200 of 4000 MHz" in outcome.summary
    assert_sound(outcome, seen)


@pytest.mark.parametrize(
    ("governor", "mhz", "own_cores"),
    [
        ("powersave", 2400.0, 2.0),
        ("powersave", 1200.0, 0.1),
        ("powersave", None, 2.0),
        ("schedutil", 1200.0, 2.0),
        (None, 1200.0, 2.0),
    ],
)
def test_a_governor_alone_or_an_idle_cpu_is_no_finding(
    governor: str | None, mhz: float | None, own_cores: float
) -> None:
    assert throttling.check(clocked(governor, mhz, own_cores)).kind == "ok"


@given(
    throttled_ms=st.floats(0, 1e6),
    own_cores=st.floats(0, 64),
    cores=st.integers(0, 64),
    clock=st.integers(1, 3000),
)
def test_estimates_are_in_order_whatever_was_measured(
    throttled_ms: float, own_cores: float, cores: int, clock: int
) -> None:
    """Degenerate ones among them: more held back than there are cores, a training at rest."""
    for seen in (
        held(throttled_ms, own_cores, affinity_cores=cores),
        on_gpu(replace(HOT, clock_mhz=clock)),
    ):
        outcome = throttling.check(seen)
        if outcome.kind == "issue":
            assert_sound(outcome, seen)
