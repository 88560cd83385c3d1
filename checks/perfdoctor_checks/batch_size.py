"""The batch is too small to fill the device, or too large for it.

What it finds
-------------
Batches below 32 examples, where a larger one trains on at least a quarter more examples a second.
As a hint: batches of 512 and more on a CPU whose step needs far more memory than caches hold.

Why it costs
------------
Each step pays for dispatch, kernel launches and synchronisation once, however many examples it
holds; and small matrix products leave cores and vector units idle. A batch of 1 never pays in
training. A batch whose intermediate results leave the caches makes each operation wait for memory;
and it runs out of memory first.

How it is measured
------------------
The batch is an axis that all arrays have which are new in each step, as the calls of the step were
seen; an axis that the program loops over is time. The captured step is run with the same data
repeated to 32 and 128 examples, a workload with 32 and twice as many for as long as throughput
grows. The memory of the intermediate results is what XLA accounts for the compiled step; what a
smaller batch gains, only a trial shows.

How to fix
----------
Begin with 32 to 128 and double until the samples per second stop growing. This changes the
training: adapt the learning rate (linear scaling), or accumulate gradients over smaller batches.

References
----------
Deeplearning4j, "Performance debugging", step 4: 32 to 128 to start with, never 1. Goyal et al.
2017, "Accurate, Large Minibatch SGD" for the learning rate.
"""

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Observation,
    Outcome,
    Program,
    StepCalls,
    hint,
    needed,
    not_applicable,
    not_measured,
    ok,
    on_cpu,
    shared_lengths,
)
from perfdoctor_checks._limits import (
    ALL_BATCHES,
    BATCHES,
    CACHES,
    LARGE_BATCH,
    MIB,
    SEVERAL,
    SMALLEST_GOOD_BATCH,
)

ID = "batch-size"
NEEDS = ("steps",)
SHOWN = 3
"""Arguments that are named at most."""


def check(observation: Observation) -> Outcome:
    """Asks for a larger batch where it is small, and for a smaller one where it is very large."""
    if not trains(observation):
        return not_applicable("the step replaces none of its arguments: it does not train")
    sizes, names = batches(observation)
    if not sizes:
        return not_measured("a step's new data have no axis in common, or are made in it")
    steps = needed(observation.steps)
    evidence = [
        *(Evidence("batch", n, "examples", names) for n in sizes),
        Evidence("throughput", steps.samples_per_s, "samples/s", "step times"),
    ]
    short = [size for size in sizes if size < SMALLEST_GOOD_BATCH]
    if not short:
        return large(observation, sizes[0], evidence)
    applicable = observation.target.workload is not None
    return hint(
        f"{' or '.join(map(str, short))} examples a step: {names}",
        evidence,
        [
            fix(larger, size, applicable=applicable)
            for size in short
            for larger in sizes_to_try(observation)
        ],
        sweep=len(short) == 1,
    )


def sizes_to_try(observation: Observation) -> list[int]:
    """Sizes to try; of batches that can be made in any size, for as long as each is worth it."""
    parts = observation.target.parts
    if parts is None or not parts.takes_batch_size:
        return list(BATCHES)
    return list(ALL_BATCHES)


def trains(observation: Observation) -> bool:
    """Whether a step hands something on to the next one."""
    calls, program = observation.calls, observation.program
    if calls is not None:
        return calls.carries_state
    return program is None or len(program.data) < len(program.arguments)


def batches(observation: Observation) -> tuple[list[int], str]:
    """The lengths that may be the batch's, the likeliest first; and whose axis it is."""
    calls, program, steps = observation.calls, observation.program, needed(observation.steps)
    parts = observation.target.parts
    if parts is not None and parts.batch_size is not None:
        return [parts.batch_size], "the workload's batch_size"
    if calls is not None:
        return in_common(calls, program)
    if steps.batch_size is None or program is None:
        return [], ""
    names = ", ".join(argument.name for argument in program.of_batch(steps.batch_size))
    return [steps.batch_size], f"leading size of {names or 'the data'}"


def in_common(calls: StepCalls, program: Program | None) -> tuple[list[int], str]:
    """Lengths that nearly all arrays have that are new in each step, and the arrays' names; two
    axes together where the program takes them as one.
    """
    trips = {loop.trips for loop in program.loops} if program is not None else set()
    leaves = [leaf for call in calls.calls for leaf in call.leaves]
    fresh = [leaf for leaf in leaves if leaf.role == "new" and leaf.kind in ("device", "host")]
    fresh = [leaf for leaf in fresh if leaf.shape]
    common = shared_lengths([(leaf.shape, leaf.bytes) for leaf in fresh])
    sizes = [size for size in common if size not in trips] or common
    having = [leaf for leaf in fresh if set(sizes) & set(leaf.shape[:2])]
    leading = [size for size in sizes if all(leaf.shape[0] == size for leaf in having)]
    names = ", ".join(leaf.argument for leaf in having[:SHOWN])
    if program is not None and program.flattens:
        both = {shape[0] * shape[1] for leaf in having if len(shape := leaf.shape) > 1}
        return sorted(both), f"the first two axes of {names}, which are new in each step"
    return leading or sizes, f"axis of {names}, which are new in each step"


def large(observation: Observation, batch: int, evidence: list[Evidence]) -> Outcome:
    """The other side: a step that needs more memory than caches, or the machine, can hold."""
    if observation.executable is None:
        return ok(f"{batch} examples a step", *evidence)
    temp = observation.executable.temp_bytes
    evidence = [
        *evidence,
        Evidence("intermediate results", round(temp / MIB, 1), "MiB", "memory_analysis"),
    ]
    if not on_cpu(observation) or temp <= CACHES:
        return ok(f"{batch} examples a step", *evidence)
    smaller = [size for size in (batch // SEVERAL, batch // SEVERAL**2) if fits(observation, size)]
    left = observation.memory.available_bytes if observation.memory else None
    text = f"{batch} examples a step make {temp / MIB:.0f} MiB of intermediate results"
    if left is not None and left < temp and smaller:
        why = f"{text}, and {left / MIB:.0f} MiB of memory are left"
    elif batch >= LARGE_BATCH and smaller:
        why = f"{text}, more than caches hold"
    else:
        return ok(f"{batch} examples a step", *evidence)
    applicable = observation.target.workload is not None
    return hint(
        why, evidence, [fix(size, batch, applicable=applicable) for size in smaller], sweep=True
    )


def fits(observation: Observation, size: int) -> bool:
    """Whether a smaller batch is a good one, and can be shared among the workload's devices."""
    workload = observation.target.workload
    devices = 1 if workload is None else workload.training.devices
    return size >= SMALLEST_GOOD_BATCH and size % devices == 0


def fix(larger: int, batch: int, *, applicable: bool) -> Fix:
    """One size to try."""
    replayed = Change(step={"program": f"batch-{batch}-to-{larger}"})
    return Fix(
        summary=f"train on {larger} examples a step",
        how=f"[training] batch_size = {larger}" if applicable else f"batch_size = {larger}",
        change=Change(workload={"training.batch_size": larger}) if applicable else replayed,
        changes_results="training",
    )
