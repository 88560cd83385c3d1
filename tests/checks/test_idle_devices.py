"""No second device is within reach of these tests: several are made by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.surroundings import Backend, Device, Gpu, GpuProcess
from perfdoctor_checks import idle_devices
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

FLAG = "--xla_force_host_platform_device_count=8"


def loaded(*shares: float, platform: str = "gpu", count: int = 0, **training: Any) -> Observation:
    """The healthy run, as if it had so many devices with these loads."""
    seen = recorded("healthy")
    assert seen.steps is not None and seen.target.workload is not None
    devices = tuple(
        Device(id=n, platform=platform, kind="H100") for n in range(count or len(shares))
    )
    options = replace(seen.target.workload.training, **training)
    workload = replace(seen.target.workload, training=options)
    return replace(
        seen,
        target=replace(seen.target, workload=workload),
        backend=Backend(platform=platform, devices=devices, start_s=1.0),
        steps=replace(seen.steps, busy_shares=shares),
    )


def cut(*shares: float, flags: str = FLAG, **training: Any) -> Observation:
    """On the CPU, devices that a flag has made."""
    seen = loaded(*shares, platform="cpu", **training)
    return replace(seen, environment={"XLA_FLAGS": flags})


def script(seen: Observation) -> Observation:
    """The same, of an unchanged script."""
    return replace(seen, target=replace(seen.target, kind="script", workload=None))


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_one_device_can_not_idle_beside_others(name: str) -> None:
    assert idle_devices.check(recorded(name)).kind == "not-applicable"


def test_finds_accelerators_without_work() -> None:
    seen = loaded(0.9, 0.0, 0.0, 0.0)
    outcome = idle_devices.check(seen)
    assert outcome.kind == "hint"
    assert_sound(outcome, seen)
    assert outcome.summary == "1 of 4 devices at work, the others idle"
    assert outcome.fixes[0].how == "[training] devices = 4"


def test_devices_that_the_trace_does_not_list_idle() -> None:
    assert "1 of 2" in idle_devices.check(loaded(0.9, count=2)).summary


@pytest.mark.parametrize(
    "options", [{"batch_size": 66}, {"state_on_host": True}, {"schedule": "traced"}, {"devices": 4}]
)
def test_what_the_workload_can_not_split_is_told_in_code(options: dict[str, Any]) -> None:
    seen = loaded(0.9, 0.0, 0.0, 0.0, **options)
    outcome = idle_devices.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change is None


def test_advice_for_a_script_is_a_sharding() -> None:
    seen = script(loaded(0.9, 0.0))
    outcome = idle_devices.check(seen)
    assert_sound(outcome, seen)
    assert 'make_mesh((2,), ("batch",))' in outcome.fixes[0].how


@pytest.mark.parametrize(("other", "kind"), [(0.9, "ok"), (0.45, "ok"), (0.44, "hint")])
def test_unequal_loads_are_a_hint(other: float, kind: str) -> None:
    seen = loaded(0.9, other)
    outcome = idle_devices.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert_sound(outcome, seen)


def test_a_gpu_that_somebody_else_uses_is_not_idle() -> None:
    gpu = Gpu(
        index=0,
        name="H100",
        memory_bytes=None,
        memory_used_bytes=None,
        utilisation_percent=None,
        driver="580",
        cuda_driver_version="13.0",
    )
    other = replace(gpu, processes=(GpuProcess(pid=1, name="python", memory_bytes=None),))
    seen = loaded(0.9, 0.0)
    assert idle_devices.check(replace(seen, gpus=(gpu, other))).kind == "ok"
    assert idle_devices.check(replace(seen, gpus=(gpu, gpu))).kind == "hint"


def test_devices_cut_from_a_cpu_are_to_be_one_again() -> None:
    seen = cut(0.9, *[0.0] * 7, flags=f"--xla_dump_to=/x {FLAG}")
    outcome = idle_devices.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == 'export XLA_FLAGS="--xla_dump_to=/x"'
    change = outcome.fixes[0].change
    assert change is not None and change.env == {"XLA_FLAGS": "--xla_dump_to=/x"}
    alone = idle_devices.check(script(cut(0.9, 0.0))).fixes[0]
    assert alone.how == "unset XLA_FLAGS" and alone.change is not None


def test_jaxs_own_variable_is_removed_as_well() -> None:
    seen = replace(cut(0.9, 0.0), environment={"JAX_NUM_CPU_DEVICES": "2"})
    assert idle_devices.check(seen).fixes[0].how == "unset JAX_NUM_CPU_DEVICES"
    in_code = idle_devices.check(replace(seen, environment={})).fixes[0]
    assert in_code.change is None and "jax_num_cpu_devices" in in_code.how


def test_no_more_devices_than_cores_and_all_at_work_is_a_choice() -> None:
    assert idle_devices.check(cut(0.9, 0.8)).kind == "ok"
    assert idle_devices.check(cut(0.9, 0.8, 0.9)).kind == "hint"


def test_a_workload_that_splits_its_batches_must_stop_that_too() -> None:
    seen = cut(*[0.2] * 8, devices=8)
    outcome = idle_devices.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == "unset XLA_FLAGS; [training] devices = 1"


def test_a_script_that_uses_all_its_devices_can_not_be_tried_with_one() -> None:
    assert idle_devices.check(script(cut(*[0.2] * 8))).fixes[0].change is None


@pytest.mark.parametrize("shares", [(), (0.0, 0.0)])
def test_loads_that_are_not_in_the_trace_are_not_measured(shares: tuple[float, ...]) -> None:
    assert idle_devices.check(loaded(*shares, count=2)).kind == "not-measured"


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("idle_devices")
    outcome = idle_devices.check(seen)
    assert_sound(outcome, seen)
    change = outcome.fixes[0].change
    assert change is not None and change.env == {"XLA_FLAGS": None}
