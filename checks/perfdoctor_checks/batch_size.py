"""The batch is too small to fill the device, or too large for it.

What it finds
-------------
Batches below 32 examples, whose step is mostly overhead that a larger batch would share out. As a
hint: batches of 512 and more on a CPU whose step needs far more memory than caches hold.

Why it costs
------------
Each step pays for dispatch, kernel launches and synchronisation once, however many examples it
holds; and small matrix products leave cores and vector units idle. A batch of 1 never pays in
training. A batch whose intermediate results leave the caches makes each operation wait for memory;
and it runs out of memory first.

How it is measured
------------------
The batch is the leading size that the step's data arguments have in common, read from its program.
The estimate shares out the time in which the device was idle, and what of its work the arithmetic
and the memory traffic of the examples do not explain (a roofline); a trial tries 32 and doubles for
as long as throughput grows. The memory of the intermediate results is what XLA accounts for the
compiled step; what a smaller batch gains, only a trial shows.

How to fix
----------
Begin with 32 to 128 and double until the samples per second stop growing. This changes the
training: adapt the learning rate (linear scaling), or accumulate gradients over smaller batches.

References
----------
Deeplearning4j, "Performance debugging", step 4: 32 to 128 to start with, never 1. Goyal et al.
2017, "Accurate, Large Minibatch SGD" for the learning rate.
"""

import math
from collections.abc import Iterable

from perfdoctor import (
    Argument,
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Program,
    Steps,
    estimated,
    hint,
    issue,
    needed,
    not_applicable,
    not_measured,
    ok,
)

ID = "batch-size"
NEEDS = ("steps", "program")
SMALLEST_GOOD = 32
RUNGS = (32, 64, 128, 256)
LARGE = 512
"""The guide begins with 32 to 128; four times that is a choice to look at."""
OPERATION_MS, BYTES_A_MS, MOST_FIXED = 1.5e-3, 10e6, 0.8
"""An operation takes at least so long on a CPU however small it is; memory passes so much in a
millisecond; and never more of the device's time than this is taken for fixed."""
TRAFFIC_A_MS, PASSES = 5e6, 7
"""Bytes that a core moves in a millisecond; how often a step of Adam reads or writes its state.
Measured on two cores, as differences between the small and the usual batches of four scripts of
tests/clinic (gan, nnx_vision, eqx_lm, scan_rl) without a trace: 4 to 5 GB/s explain all but the
steps of gan, whose arithmetic takes longer."""
LOADING_MS = 0.3
"""What a loader in Python does once a batch, however many examples it has: drawing, stacking."""
MIB = 2**20
CACHES = 64 * MIB
"""The last cache of most server CPUs is smaller, and a process seldom has it alone."""


def check(observation: Observation) -> Outcome:
    """Reads the batch from the program."""
    steps, program = needed(observation.steps), needed(observation.program)
    batch = steps.batch_size
    if len(program.data) == len(program.arguments):
        return not_applicable("the step replaces none of its arguments: it does not train")
    if batch is None:
        return not_measured("the step's data have no leading size in common")
    names = ", ".join(argument.name for argument in program.of_batch(batch))
    evidence = [
        Evidence(name="batch", value=batch, unit="examples", source=f"leading size of {names}"),
        Evidence(
            name="throughput", value=steps.samples_per_s, unit="samples/s", source="step times"
        ),
    ]
    if batch >= SMALLEST_GOOD:
        return large(observation, batch, evidence)
    idle = max(0.0, 1 - steps.device_busy_ms / max(steps.time_ms, 1e-9))
    return issue(
        f"{batch} examples a step; the device is idle for {idle:.0%} of it",
        evidence,
        [fix(rung, observation.target.workload is not None) for rung in RUNGS],
        gain(observation, steps, program, batch),
        ladder=True,
    )


def large(observation: Observation, batch: int, evidence: list[Evidence]) -> Outcome:
    """The other side: a step that needs more memory than caches, or the machine, can hold."""
    if observation.executable is None:
        return ok(f"{batch} examples a step", *evidence)
    temp = observation.executable.temp_bytes
    evidence = [
        *evidence,
        Evidence(
            name="intermediate results",
            value=round(temp / MIB, 1),
            unit="MiB",
            source="memory_analysis",
        ),
    ]
    on_cpu = observation.backend is not None and observation.backend.platform == "cpu"
    if not on_cpu or temp <= CACHES:
        return ok(f"{batch} examples a step", *evidence)
    smaller = [size for size in (batch // 4, batch // 16) if fits(observation, size)]
    left = observation.memory.available_bytes if observation.memory else None
    text = f"{batch} examples a step make {temp / MIB:.0f} MiB of intermediate results"
    if left is not None and left < temp and smaller:
        why = f"{text}, and {left / MIB:.0f} MiB of memory are left"
    elif batch >= LARGE and smaller:
        why = f"{text}, more than caches hold"
    else:
        return ok(f"{batch} examples a step", *evidence)
    applicable = observation.target.workload is not None
    return hint(why, evidence, [fix(size, applicable) for size in smaller], ladder=True)


def fits(observation: Observation, size: int) -> bool:
    """Whether a smaller batch is a good one, and can be shared among the workload's devices."""
    workload = observation.target.workload
    return size >= SMALLEST_GOOD and (workload is None or size % workload.training.devices == 0)


def gain(observation: Observation, steps: Steps, program: Program, batch: int) -> Gain:
    """If what does not grow with the batch were shared out, and all else grew in proportion.

    What does not is the time in which the device idles, but for the loading of the examples, and of
    its work what is neither arithmetic nor traffic of them; at least the idle time and a part of
    the rest.
    """
    times, time_ms = SMALLEST_GOOD / batch, max(steps.time_ms, 1e-9)
    loading_ms = max(0.0, steps.exposed_etl_ms - LOADING_MS)
    busy_ms = min(steps.device_busy_ms, time_ms)
    fixed_ms = fixed_busy_ms(observation, steps, resting_bytes(program, batch))

    def shared_out(fixed_busy_ms: float) -> float:
        growing_ms = busy_ms - fixed_busy_ms + loading_ms
        return min(times, max(1.0, times * time_ms / (time_ms + (times - 1) * growing_ms)))

    low = shared_out(fixed_ms / 2)
    return estimated(shared_out(fixed_ms), 1 + (low - 1) / 2, times)


def fixed_busy_ms(observation: Observation, steps: Steps, resting_bytes: int) -> float:
    """Of the device's work in a step, what more examples would not make longer.

    On a CPU by a roofline: what the examples' arithmetic and traffic do not explain. Elsewhere, and
    without XLA's account, by an overhead for each operation, and the update of the state.
    """
    busy_ms = min(steps.device_busy_ms, steps.time_ms)
    account, backend = observation.executable, observation.backend
    if account is None or not account.flops or backend is None or backend.platform != "cpu":
        overhead_ms = steps.operations * OPERATION_MS + 2 * resting_bytes / BYTES_A_MS
        return min(MOST_FIXED * busy_ms, overhead_ms)
    traffic = max(0.0, (account.bytes_accessed or 0.0) - PASSES * resting_bytes)
    host = observation.host
    growing_ms = host.arithmetic_ms(account.flops) + traffic / (TRAFFIC_A_MS * host.usable_cores)
    growing_ms /= steps.work.get(steps.function, 1.0) or 1.0  # the step's other functions grow too
    return min(MOST_FIXED * busy_ms, max(0.0, busy_ms - growing_ms))


def resting_bytes(program: Program, batch: int) -> int:
    """Of the arguments that do not grow with the batch: the state, and frozen networks."""
    return 4 * (elements(program.arguments) - elements(program.of_batch(batch)))


def elements(arguments: Iterable[Argument]) -> int:
    """All together."""
    return sum(math.prod(each.shape) for each in arguments)


def fix(rung: int, applicable: bool) -> Fix:
    """One size to try."""
    return Fix(
        summary=f"train on {rung} examples a step",
        how=f"[training] batch_size = {rung}" if applicable else f"batch_size = {rung}",
        change=Change(workload={"training.batch_size": rung}) if applicable else None,
        changes_results="training",
    )
