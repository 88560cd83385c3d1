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
grows. What the captured step's larger batch takes to be loaded grows with it at most, or not at
all: the interval reaches from one to the other. A step that makes its own data has no such axis:
where most of its layers compute fewer than 32 rows, 16 such steps are computed side by side, and
what these gain a larger batch does at least. The memory of the intermediate results is what XLA
accounts for the compiled step; what a smaller batch gains, only a trial shows.

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
    hint,
    needed,
    not_applicable,
    not_measured,
    ok,
    on_cpu,
)
from perfdoctor_checks._batches import batches, draws, new_arrays
from perfdoctor_checks._limits import (
    ALL_BATCHES,
    BATCHES,
    CACHES,
    LARGE_BATCH,
    MIB,
    MOSTLY,
    SEVERAL,
    SMALLEST_GOOD_BATCH,
)

ID = "batch-size"
NEEDS = ("steps",)
NO_AXIS = "a step's new data have no axis in common, or are made in it"
IN_THE_STEP = Fix(
    summary="let each step make more examples",
    how="batch_size = 64  # or num_envs, num_samples: how many a step draws side by side",
    change=Change(step={"program": "copies-16"}),
    changes_results="training",
)
"""Of a step that makes its own data; tried with several such steps at once."""


def check(observation: Observation) -> Outcome:
    """Asks for a larger batch where it is small, and for a smaller one where it is very large."""
    if not trains(observation):
        return not_applicable("the step replaces none of its arguments: it does not train")
    lengths, names = batches(observation)
    if not lengths:
        return made_inside(observation)
    steps = needed(observation.steps)
    evidence = [
        *(Evidence("batch", n, "examples", names) for n in lengths),
        Evidence("throughput", steps.samples_per_s, "samples/s", "step times"),
    ]
    short = [size for size in lengths if size < SMALLEST_GOOD_BATCH]
    if not short:
        return large(observation, lengths[0], evidence)
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


def made_inside(observation: Observation) -> Outcome:
    """Of a step that makes its own data no length is the batch's; but how many rows its layers
    compute at once is known.
    """
    layers = observation.program.layers if observation.program is not None else ()
    small = [layer for layer in layers if layer.rows < SMALLEST_GOOD_BATCH]
    times = sum(layer.executed for layer in layers)
    calls = observation.calls
    if calls is None or new_arrays(calls) or not draws(calls) or not small:
        return not_measured(NO_AXIS)
    if sum(layer.executed for layer in small) < MOSTLY * times:
        return not_measured(NO_AXIS)
    rows = max(layer.rows for layer in small)
    text = f"most layers of the step compute {rows} row{'s' * (rows != 1)} at once, or fewer"
    evidence = [Evidence("rows", rows, "at once", "StableHLO of the step")]
    return hint(f"{text}; its data are made in it", evidence, [IN_THE_STEP])


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
