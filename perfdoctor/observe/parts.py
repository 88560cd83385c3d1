"""The parts of an Observation that are made of what the agent has recorded."""

from pathlib import Path

import msgspec

from perfdoctor.observe.probing import Settings
from perfdoctor.schema.calls import MOSTLY, Eager
from perfdoctor.schema.capture import WHOLE_TOLD
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.memory import Memory
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import CompileCache, Setting
from perfdoctor.schema.surroundings import Backend, Host

FEW_CALLS = 8
"""Jitted calls of a step that is no sequence of operations."""


def within(machine: Host, affinity_cores: int) -> Host:
    """The host as the program may use it, which may have bound itself to fewer cores."""
    if not 0 < affinity_cores < machine.affinity_cores:
        return machine
    return msgspec.structs.replace(
        machine,
        affinity_cores=affinity_cores,
        usable_cores=min(machine.usable_cores, float(affinity_cores)),
    )


def settings_made(
    at_import: Settings, recording: Recording, env: dict[str, str]
) -> tuple[Setting, ...]:
    """The settings that are not JAX's defaults, and whether the environment or code made them."""
    made = []
    for name, value in sorted(recording.settings.items()):
        if name in at_import and value != at_import[name]:
            made.append(Setting(name=name, value=value, origin="code"))
        elif name.upper() in env:
            made.append(Setting(name=name, value=value, origin="environment"))
    return tuple(made)


def eager(recording: Recording, digest: Digest | None, capture_to: Path | None) -> Eager | None:
    """The function that dispatches operations, and whether it was saved as a whole.

    One that took most of the time, when the steps that were traced then are few jitted calls, was
    part of a set-up.
    """
    found, steps = recording.eager, digest.steps if digest else None
    if found is None or capture_to is None:
        return found
    if steps is not None and steps.dispatches <= FEW_CALLS and found.share >= MOSTLY:
        return None
    try:
        return msgspec.json.decode((capture_to / WHOLE_TOLD).read_bytes(), type=Eager)
    except OSError:
        return msgspec.structs.replace(found, why_not="the program did not end in time")


def compile_cache(recording: Recording) -> CompileCache:
    """JAX's persistent cache, as far as the run used it."""
    folder = recording.settings.get("jax_compilation_cache_dir")
    return CompileCache(
        folder=str(folder) if folder else None,
        hits=recording.cache_hits,
        misses=recording.cache_misses,
    )


def memory(recording: Recording) -> Memory:
    """The target's memory, and what was left beside it."""
    return Memory(
        rss_bytes=recording.rss_bytes,
        peak_rss_bytes=recording.peak_rss_bytes,
        available_bytes=recording.available_bytes,
        swapped_bytes=recording.swapped_bytes,
        samples=tuple(recording.memory_samples),
        arrays=tuple(recording.arrays),
        devices=tuple(recording.device_memory),
    )


def own_backend(backend: Backend | None, recording: Recording | None) -> Backend | None:
    """What the program itself computes on: its code may choose otherwise than where it began."""
    if backend is None or recording is None or not recording.platform:
        return backend
    return msgspec.structs.replace(
        backend, platform=recording.platform, devices=recording.computes_on
    )
