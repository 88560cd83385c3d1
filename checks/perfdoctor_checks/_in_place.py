"""State that is copied where it could be written in place."""

from perfdoctor import Evidence, Gain, Observation, needed, spared
from perfdoctor_checks._allocators import MALLOC
from perfdoctor_checks._donation import UNUSABLE, state
from perfdoctor_checks._limits import GOOD_PART, LEAST_SHARE, MIB


def without_copies(observation: Observation) -> Gain | None:
    """The gain if what is copied were written in place; None if the device does not copy for long.

    A step that may not overwrite its state copies what it only changes in part: a table of which a
    few rows are updated. Twice as much at most, for what it is copied into is fresh memory.
    """
    steps = needed(observation.steps)
    if steps.copy_ms < LEAST_SHARE * steps.time_ms or observation.executable is None:
        return None
    if observation.executable.copied_bytes < GOOD_PART * state_bytes(observation):
        return None
    return spared(steps.time_ms, steps.copy_ms, steps.copy_ms / 2, 2 * steps.copy_ms)


def copied(observation: Observation) -> str:
    """How much, and what it takes."""
    steps, compiled = needed(observation.steps), needed(observation.executable)
    return f"the step copies {compiled.copied_bytes / MIB:.0f} MiB in {steps.copy_ms:.1f} ms"


def state_bytes(observation: Observation) -> int:
    """Bytes of all arguments that a result replaces."""
    if observation.program is None:
        return 0
    return sum(each.bytes for each in state(observation.program))


def facts(observation: Observation) -> list[Evidence]:
    """State, shared and temporary bytes, copies; settings; warnings."""
    found = []
    if observation.program is not None:
        value = round(state_bytes(observation) / MIB, 2)
        found.append(Evidence("state", value, "MiB", "StableHLO"))
    if observation.executable is not None:
        compiled = observation.executable
        found += [
            Evidence(name, round(size / MIB, 2), "MiB", source)
            for name, size, source in (
                ("written into donated buffers", compiled.alias_bytes, "memory_analysis"),
                ("temporary", compiled.temp_bytes, "memory_analysis"),
                ("copied", compiled.copied_bytes, "compiled step"),
            )
        ]
    names = (*MALLOC, "GLIBC_TUNABLES", "XLA_PYTHON_CLIENT_PREALLOCATE")
    for name in (*names, "XLA_PYTHON_CLIENT_ALLOCATOR"):
        if name in observation.environment:
            value_ = observation.environment[name]
            found.append(Evidence(name, value_, "", "environment"))
    found += [
        Evidence("JAX warned", each[:200], "", "warnings")
        for each in observation.messages or ()
        if UNUSABLE in each
    ]
    if observation.memory is not None:
        peak = round(observation.memory.peak_rss_bytes / MIB)
        found.append(Evidence("peak memory", peak, "MiB", "VmHWM"))
    return found or [Evidence("settings of the allocator", 0, "", "environment")]
