"""Memory is asked for anew where buffers could be reused.

What it finds
-------------
A state that the step replaces but may not overwrite (no donation), donations that can't be used,
settings of glibc's allocator that give each freed buffer back to the kernel, settings that make a
GPU's allocator do the like, and memory in pieces too small to use.

Why it costs
------------
Without donation old and new state are in memory together, and parts that hardly change are copied.
That often costs no time (0.99 to 1.13 times for 1.5 to 150 MB), but 1.4 times where few rows of a
large table change. With `MALLOC_*` thresholds each buffer is mapped and its pages are faulted in
anew: 2 to 2.4 times slower.

How it is measured
------------------
The step's program says which arguments a result replaces and which are donated; of a step of
several functions, its calls as they were seen do. The compiled step says how many bytes share
buffers; the rest is read from the environment and the devices' allocators.
What it costs is not in the observation: a trial decides.

How to fix
----------
`jax.jit(step, donate_argnums=0)`, and rebind the state: `state = step(state, batch)`. Unset
`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`, `MALLOC_TOP_PAD_`; leave a GPU's allocator its
preallocated pool.

References
----------
Deeplearning4j, "Workspaces". JAX, "Buffer donation", "GPU memory allocation". mallopt(3): setting
one of the thresholds ends their automatic adjustment.
"""

from perfdoctor import (
    Evidence,
    Gain,
    Observation,
    Outcome,
    hint,
    issue,
    needed,
    not_measured,
    ok,
    spared,
)
from perfdoctor_checks._allocators import MALLOC, allocator, in_pieces, on_gpu
from perfdoctor_checks._donation import UNUSABLE, not_donated, state, unusable
from perfdoctor_checks._limits import GOOD_PART, LEAST_SHARE, MIB

ID = "workspaces"
NEEDS = ("steps",)


def check(observation: Observation) -> Outcome:
    """Collects the reasons why buffers are not reused."""
    needed(observation.steps)
    reasons = (
        allocator(observation)
        + on_gpu(observation)
        + not_donated(observation)
        + unusable(observation)
        + in_pieces(observation)
    )
    evidence = facts(observation)
    gain = without_copies(observation)
    if not_donated(observation) and gain is not None:
        texts = [text for text, _ in reasons]
        fixes = [fix for _, fix in [*not_donated(observation), *reasons]]
        return issue("; ".join([copied(observation), *texts]), evidence, fixes, gain)
    if reasons:
        return hint("; ".join(text for text, _ in reasons), evidence, [fix for _, fix in reasons])
    if observation.program is None and observation.executable is None:
        return not_measured("the step's program was not read")
    return ok("nothing keeps buffers from being reused", *evidence)


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
