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

from perfdoctor import Evidence, Observation, Outcome, hint, needed, not_applicable
from perfdoctor_checks._batch_sizes import fix, large, made_inside, sizes_to_try, trains
from perfdoctor_checks._batches import batches
from perfdoctor_checks._limits import SMALLEST_GOOD_BATCH

ID = "batch-size"
NEEDS = ("steps",)


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
