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
The step's program says which arguments a result replaces and which are donated, the compiled step
how many bytes share buffers; the rest is read from the environment and the devices' allocators.
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

import math
import re

from perfdoctor import (
    Argument,
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Program,
    estimated,
    hint,
    issue,
    needed,
    not_measured,
    ok,
    set_variables,
)

ID = "workspaces"
NEEDS = ("steps",)
MIB = 2**20
LEAST_BYTES = MIB
"""A smaller state fits caches: copying it takes microseconds."""
MALLOC = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
TUNABLE = re.compile(r"glibc\.malloc\.(mmap_threshold|trim_threshold|top_pad|mmap_max)=")
GENEROUS = 16 * MIB
"""Both thresholds above: most buffers stay with the process, which is what a tuner wants."""
FEWEST_OPERATIONS = 6
"""A program of fewer is one operation that was called outside of `jax.jit`, not a step."""
LEAST_SHARE, LARGE_COPY = 0.05, 0.25
"""Copies matter from this share of the step on, and are of the state if they are so much of it."""
FRESH, FRESH_HIGH = 1.4, 1.8
"""Times the copy itself: what it is copied into is fresh memory, which is given back after the step
(recsys of tests/clinic: 1.4 to 1.7)."""
PIECES = 4
"""The largest free block is so many times smaller than what is free: it is in pieces."""
BITS = re.compile(r"\d+")
SHAPE = re.compile(r"\b([a-z]+\d+)\[([\d,]*)\]")
UNUSABLE = "donated buffers were not usable"
Reason = tuple[str, Fix]


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
    """If what is copied were written in place; None if the device does not copy for long.

    A step that may not overwrite its state copies what it only changes in part: a table of which
    a few rows are updated.
    """
    steps = needed(observation.steps)
    share = steps.copy_ms / max(steps.time_ms, 1e-9)
    if share < LEAST_SHARE or observation.executable is None:
        return None
    if observation.executable.copied_bytes < LARGE_COPY * state_bytes(observation):
        return None
    likely, least, most = (min(0.95, share * each) for each in (FRESH, 0.5, FRESH_HIGH))
    return estimated(1 / (1 - likely), 1 / (1 - least), 1 / (1 - most))


def copied(observation: Observation) -> str:
    """How much, and what it takes."""
    steps, compiled = needed(observation.steps), needed(observation.executable)
    return f"the step copies {compiled.copied_bytes / MIB:.0f} MiB in {steps.copy_ms:.1f} ms"


def allocator(observation: Observation) -> list[Reason]:
    """Settings of glibc's malloc, which serves XLA on the CPU."""
    env = observation.environment
    if platform(observation) != "cpu" or "malloc" in env.get("LD_PRELOAD", ""):
        return []
    names = [name for name in MALLOC if name in env]
    change: dict[str, str | None] = dict.fromkeys(names)
    tunables = env.get("GLIBC_TUNABLES", "")
    parts = [part for part in tunables.split(":") if part and not TUNABLE.match(part)]
    rest = ":".join(parts)
    if TUNABLE.search(tunables):
        change["GLIBC_TUNABLES"] = rest or None
    thresholds = [env.get(name, "") for name in MALLOC[:2]]
    generous = all(each.isdigit() and int(each) >= GENEROUS for each in thresholds)
    if not change or (generous and "GLIBC_TUNABLES" not in change):
        return []
    fix = Fix(
        summary="let malloc adjust its thresholds itself",
        how=set_variables(observation, change),
        change=Change(env=change),
    )
    return [(f"{', '.join(change)} may give freed buffers back to the kernel at once", fix)]


def on_gpu(observation: Observation) -> list[Reason]:
    """Settings that take the GPU's allocator its pool."""
    if platform(observation) not in ("gpu", "cuda"):
        return []
    env = observation.environment
    names = []
    if env.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("false", "0"):
        names.append("XLA_PYTHON_CLIENT_PREALLOCATE")
    if env.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        names.append("XLA_PYTHON_CLIENT_ALLOCATOR")
    if not names:
        return []
    fix = Fix(
        summary="let jax keep a pool of the GPU's memory",
        how=set_variables(observation, dict.fromkeys(names)),
        change=Change(env=dict.fromkeys(names)),
    )
    settings = ", ".join(f"{name}={env[name]}" for name in names)
    return [(f"{settings}: the GPU's memory is asked for piece by piece", fix)]


def not_donated(observation: Observation) -> list[Reason]:
    """A state of some size that the step may not overwrite."""
    program, executable = observation.program, observation.executable
    if program is None or (executable is not None and executable.alias_bytes > 0):
        return []
    if sum(program.operations.values()) < FEWEST_OPERATIONS:
        return []
    kept = [argument for argument in state(program) if not argument.donated]
    size = sum(size_of(argument.shape, argument.dtype) for argument in kept)
    if size < LEAST_BYTES:
        return []
    workload = observation.target.workload
    reason = f"{size / MIB:.1f} MiB of state are not donated, so the step holds them twice"
    saved = f"saves {size / MIB:.1f} MiB"
    if workload is not None and workload.training.jit and not workload.training.donate:
        fix = Fix(
            summary=f"let the step overwrite the state that it replaces; {saved}",
            how="[training] donate = true",
            change=Change(workload={"training.donate": True}),
        )
    else:
        fix = Fix(
            summary=f"let the step overwrite the state that it replaces; {saved}",
            how="jax.jit(step, donate_argnums=0)  # and rebind: state = step(state, batch)",
            change=Change(step={"donated": True}),
        )
    return [(reason, fix)]


def unusable(observation: Observation) -> list[Reason]:
    """Donations that JAX warned of, unless they are small."""
    warned = [each for each in observation.messages or () if UNUSABLE in each]
    sizes = [
        [size_of(tuple(int(n) for n in dims.split(",") if n), kind) for kind, dims in found]
        for each in warned
        if (found := SHAPE.findall(each))
    ]
    small = len(sizes) == len(warned) and sum(map(sum, sizes)) < LEAST_BYTES
    if not warned or small:
        return []
    size = sum(map(sum, sizes))
    fix = Fix(
        summary="donate only what a result of the same shape and type replaces",
        how="keep shapes and dtypes of the state, or take the argument out of donate_argnums",
    )
    return [(f"donated buffers were not usable ({size / MIB:.1f} MiB)", fix)]


def in_pieces(observation: Observation) -> list[Reason]:
    """Devices whose free memory is in small blocks."""
    for index, device in enumerate(observation.memory.devices if observation.memory else ()):
        pool, largest = device.pool_bytes or device.limit_bytes, device.largest_free_bytes
        if pool is None or largest is None:
            continue
        free = pool - device.in_use_bytes
        if free > max(pool // 10, PIECES * largest):
            text = f"device {index} has {free / MIB:.0f} MiB free, {largest / MIB:.0f} in one piece"
            fix = Fix(
                summary="let CUDA's own allocator join the pieces, or preallocate the pool",
                how="export XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
            )
            return [(text, fix)]
    return []


def platform(observation: Observation) -> str | None:
    """What jax computes on, if that is known."""
    return observation.backend.platform if observation.backend else None


def state(program: Program) -> list[Argument]:
    """The arguments that a result replaces."""
    data = {id(argument) for argument in program.data}
    return [argument for argument in program.arguments if id(argument) not in data]


def state_bytes(observation: Observation) -> int:
    """Of all arguments that a result replaces."""
    if observation.program is None:
        return 0
    return sum(size_of(each.shape, each.dtype) for each in state(observation.program))


def size_of(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array; a bool takes one."""
    bits = BITS.search(dtype)
    return math.prod(shape) * max(8, int(bits[0]) if bits else 32) // 8


def facts(observation: Observation) -> list[Evidence]:
    """State, shared and temporary bytes, copies; settings; warnings."""
    found = []
    if observation.program is not None:
        value = round(state_bytes(observation) / MIB, 2)
        found.append(Evidence(name="state", value=value, unit="MiB", source="StableHLO"))
    if observation.executable is not None:
        compiled = observation.executable
        found += [
            Evidence(name=name, value=round(size / MIB, 2), unit="MiB", source=source)
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
            found.append(Evidence(name=name, value=value_, unit="", source="environment"))
    found += [
        Evidence(name="JAX warned", value=each[:200], unit="", source="warnings")
        for each in observation.messages or ()
        if UNUSABLE in each
    ]
    if observation.memory is not None:
        peak = round(observation.memory.peak_rss_bytes / MIB)
        found.append(Evidence(name="peak memory", value=peak, unit="MiB", source="VmHWM"))
    return found or [
        Evidence(name="settings of the allocator", value=0, unit="", source="environment")
    ]
