"""The batch is too small to fill the device.

What it finds
-------------
Batches below 32 examples, whose step is mostly overhead that a larger batch would share out.

Why it costs
------------
Each step pays for dispatch, kernel launches and synchronisation once, however many examples it
holds; and small matrix products leave cores and vector units idle. A batch of 1 never pays in
training.

How it is measured
------------------
The batch is the leading size that the step's data arguments have in common, read from its program.
The estimate shares out the time in which the device was idle and nothing more, so it is low; a
trial tries 32 and doubles for as long as throughput grows.

How to fix
----------
Begin with 32 to 128 and double until the samples per second stop growing. This changes the
training: adapt the learning rate (linear scaling), or accumulate less.

References
----------
Deeplearning4j, "Performance debugging", step 4: 32 to 128 to start with, never 1. Goyal et al.
2017, "Accurate, Large Minibatch SGD" for the learning rate.
"""

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Steps,
    estimated,
    issue,
    needed,
    not_measured,
    ok,
)

ID = "batch-size"
NEEDS = ("steps", "program")
SMALLEST_GOOD = 32
RUNGS = (32, 64, 128, 256)


def check(observation: Observation) -> Outcome:
    """Reads the batch from the program."""
    steps, program = needed(observation.steps), needed(observation.program)
    batch = steps.batch_size
    if batch is None:
        return not_measured("the step's data have no leading size in common")
    names = ", ".join(argument.name for argument in program.data if argument.shape)
    evidence = [
        Evidence(name="batch", value=batch, unit="examples", source=f"leading size of {names}"),
        Evidence(
            name="throughput", value=steps.samples_per_s, unit="samples/s", source="step times"
        ),
    ]
    if batch >= SMALLEST_GOOD:
        return ok(f"{batch} examples a step", *evidence)
    idle = 1 - steps.device_busy_ms / steps.time_ms
    return issue(
        f"{batch} examples a step; the device is idle for {idle:.0%} of it",
        evidence,
        [fix(rung, observation.target.workload is not None) for rung in RUNGS],
        gain(steps, batch),
        ladder=True,
    )


def gain(steps: Steps, batch: int) -> Gain:
    """If device time grew in proportion to the batch, and nothing else did."""
    times = SMALLEST_GOOD / batch
    idle_ms = max(0.0, steps.time_ms - steps.device_busy_ms)
    low = times * steps.time_ms / (idle_ms + times * steps.device_busy_ms)
    return estimated(speedup=low, low=max(1.0, 1 + (low - 1) / 2), high=times)


def fix(rung: int, applicable: bool) -> Fix:
    """One size to try."""
    return Fix(
        summary=f"train on {rung} examples a step",
        how=f"[training] batch_size = {rung}" if applicable else f"batch_size = {rung}",
        change=Change(workload={"training.batch_size": rung}) if applicable else None,
        changes_results="training",
    )
