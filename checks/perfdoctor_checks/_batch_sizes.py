"""Larger and smaller batches: whether a step trains on them, and which to try."""

from perfdoctor import Change, Evidence, Fix, Observation, Outcome, hint, not_measured, ok, on_cpu
from perfdoctor_checks._batches import draws, new_arrays
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

NO_AXIS = "a step's new data have no axis in common, or are made in it"
IN_THE_STEP = Fix(
    summary="let each step make more examples",
    how="batch_size = 64  # or num_envs, num_samples: how many a step draws side by side",
    change=Change(step={"program": "copies-16"}),
    changes_results="training",
)
"""Of a step that makes its own data; tried with several such steps at once."""


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
