"""The parts of an Observation that are made of what was recorded."""

from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from perfdoctor import needed
from perfdoctor.observe.parts import (
    compile_cache,
    eager,
    memory,
    own_backend,
    settings_made,
    within,
)
from perfdoctor.observe.probing import Settings
from perfdoctor.schema.calls import Eager
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.memory import DeviceMemory, LiveArrays, MemorySample
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import CompileCache
from tests.recorded import recorded


@pytest.mark.parametrize(("bound", "usable"), [(0, 3.5), (2, 2.0), (4, 3.5), (8, 3.5)])
def test_a_program_that_binds_itself_to_fewer_cores_uses_those(bound: int, usable: float) -> None:
    machine = replace(recorded("healthy").host, affinity_cores=4, usable_cores=3.5)
    found = within(machine, bound)
    assert found.usable_cores == usable
    assert found.affinity_cores == (bound if bound == 2 else 4)


def test_what_the_program_chose_in_its_code_is_what_it_computes_on() -> None:
    """The probe, which runs before it, was told of one device."""
    probed = needed(recorded("healthy").backend)
    assert len(probed.devices) == 1
    several = tuple(replace(probed.devices[0], id=number) for number in range(8))
    seen = Recording(start_ns=0, platform="cpu", computes_on=several)
    found = own_backend(replace(probed, platform="gpu"), seen)
    assert found == replace(probed, platform="cpu", devices=several)
    assert own_backend(probed, Recording(start_ns=0)) == probed  # it ended before it was asked
    assert own_backend(probed, None) == probed and own_backend(None, seen) is None


def made(
    at_import: Settings, in_the_end: Settings, env: dict[str, str]
) -> list[tuple[str, object, str]]:
    settings = settings_made(at_import, Recording(start_ns=0, settings=in_the_end), env)
    return [(setting.name, setting.value, setting.origin) for setting in settings]


def test_a_setting_that_changed_after_the_import_came_from_code() -> None:
    assert made({"jax_debug_nans": False}, {"jax_debug_nans": True}, {}) == [
        ("jax_debug_nans", True, "code")
    ]


def test_a_setting_that_the_environment_names_came_from_there() -> None:
    settings: Settings = {"jax_enable_x64": True, "jax_log_compiles": False}
    assert made(settings, settings, {"JAX_ENABLE_X64": "1"}) == [
        ("jax_enable_x64", True, "environment")
    ]


def test_code_has_the_last_word_over_the_environment() -> None:
    env = {"JAX_ENABLE_X64": "1"}
    assert made({"jax_enable_x64": True}, {"jax_enable_x64": False}, env) == [
        ("jax_enable_x64", False, "code")
    ]


def test_defaults_are_not_listed() -> None:
    settings: Settings = {"jax_enable_x64": False, "jax_platforms": None}
    assert made(settings, settings, {"HOME": "/home/me"}) == []


def test_memory_is_what_was_recorded_and_what_is_left() -> None:
    found = memory(Recording(start_ns=0, rss_bytes=10, peak_rss_bytes=20))
    assert (found.rss_bytes, found.peak_rss_bytes) == (10, 20)
    assert 0 <= found.available_bytes <= psutil.virtual_memory().total


def test_memory_keeps_what_was_sampled() -> None:
    sample = MemorySample(at_s=0.5, rss_bytes=10, array_bytes=3)
    arrays = LiveArrays(shape=(3,), dtype="int8", counts=(1,), bytes_each=3)
    device = DeviceMemory(
        in_use_bytes=1, peak_bytes=2, limit_bytes=3, largest_free_bytes=None, pool_bytes=None
    )
    found = memory(
        Recording(
            start_ns=0,
            swapped_bytes=7,
            memory_samples=[sample],
            arrays=[arrays],
            device_memory=[device],
        )
    )
    assert found.swapped_bytes == 7
    assert (found.samples, found.arrays, found.devices) == ((sample,), (arrays,), (device,))


def cache_of(folder: str | None, hits: int = 0, misses: int = 0) -> CompileCache:
    settings: Settings = {"jax_compilation_cache_dir": folder}
    return compile_cache(
        Recording(start_ns=0, settings=settings, cache_hits=hits, cache_misses=misses)
    )


def test_the_cache_in_use_has_its_folder_and_counts() -> None:
    assert cache_of("/home/me/cache", 3, 1) == CompileCache(
        folder="/home/me/cache", hits=3, misses=1
    )


@pytest.mark.parametrize("folder", [None, ""])
def test_a_cache_without_a_folder_is_not_in_use(folder: str | None) -> None:
    assert cache_of(folder).folder is None
    assert compile_cache(Recording(start_ns=0)).folder is None


@pytest.mark.parametrize(
    ("dispatches", "share", "found"), [(1.0, 0.9, False), (1.0, 0.3, True), (300.0, 0.9, True)]
)
def test_what_dispatched_operations_before_jitted_steps_was_a_set_up(
    tmp_path: Path, dispatches: float, share: float, found: bool
) -> None:
    told = Eager(function="f", file="t.py", line=1, call_ms=9.0, share=share)
    steps = replace(needed(recorded("healthy").steps), dispatches=dispatches)
    digest = Digest(compiles=(), garbage=None, steps=steps, program=None, executable=None)
    answer = eager(Recording(start_ns=0, eager=told), digest, tmp_path)
    assert (answer is not None) == found
    if answer is not None:
        assert answer.why_not == "the program did not end in time"
