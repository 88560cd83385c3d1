"""The step waits for its data.

What it finds
-------------
Time in which the device is idle because the main thread is still loading, decoding or augmenting
the next batch (extract, transform, load). Loading that the device does not wait for is no finding:
asynchronous dispatch hides it.

Why it costs
------------
A step of 100 ms whose batch takes 200 ms waits 100 ms for it; with a batch of 50 ms it waits for
nothing. Only the part that is not hidden behind the computation costs time.

How it is measured
------------------
The main thread's stack, sampled every 5 ms, is laid beside the profiler's timeline: samples inside
data loaders (iterators, `__getitem__`, grain, PIL, torch's DataLoader …) count where no device
computes, or where each call finds the last one's results computed already: then the device waits,
however the trace looks. Loading behind a step on the CPU shares its cores with it, be it in the
main thread, in other threads or in processes; what that costs is not inferred but tried: on the
step alone, beside the same loading in another process, or none. A listener times the wait for each
batch; where the last score was computed when it ended, the device had run out of work.

How to fix
----------
Prepare batches ahead of the step (prefetch), in more threads or processes; or decode the files once
and save the arrays. Read the finding's places: a slow decoder wants saved arrays, a slow disk wants
a local copy, a slow network wants prefetch.

References
----------
Deeplearning4j, "Performance debugging", step 2: ETL time above 0 ms after the first iteration.
"""

import math

from perfdoctor import (
    Iterations,
    Observation,
    Outcome,
    estimated,
    hint,
    issue,
    needed,
    ok,
    on_cpu,
    spared,
    traced,
)
from perfdoctor_checks import _listened
from perfdoctor_checks._data_waits import (
    LEAST_GAIN,
    WAITING,
    facts,
    loaded_beside_ms,
    the_busiest,
    waiting_for_data_ms,
    with_place,
    without_waiting,
    without_what_loads_beside,
)
from perfdoctor_checks._limits import LEAST_SHARE, MOSTLY
from perfdoctor_checks._loading import for_script, for_workload

ID = "etl"
NEEDS = ("steps|iterations",)


def check(observation: Observation) -> Outcome:
    """Reads the exposed part of the data loading from the steps."""
    if observation.steps is None:
        return by_listening(needed(observation.iterations))
    steps = traced(observation.steps)
    evidence = facts(steps)
    waiting_ms, workload = waiting_for_data_ms(observation, steps), observation.target.workload
    cores = max(1, round(observation.host.usable_cores))
    ours = observation.target.parts is not None
    fixes = for_script(in_our_loop=ours) if workload is None else for_workload(workload, cores)
    if waiting_ms > LEAST_SHARE * steps.time_ms:
        gain = without_waiting(observation, steps, waiting_ms)
        text = WAITING[waiting_ms > steps.exposed_etl_ms].format(waiting_ms)
        return issue(with_place(steps, text), evidence, fixes, gain, sweep=workload is None)
    if steps.exposed_etl_ms > 0 and steps.synchronized >= MOSTLY:
        why = "loading shows only because the host waits for each step: see host-sync"
        return ok(why, *evidence)
    most = spared(steps.time_ms, steps.etl_ms, 0.0, 0.0).speedup
    if on_cpu(observation) and most >= LEAST_GAIN:
        gain = estimated(math.sqrt(most), 1.0, most)
        text = f"loading takes {steps.etl_ms:.1f} ms a step on the cores that the step computes on"
        return hint(with_place(steps, text), evidence, fixes, gain, sweep=workload is None)
    bound = without_what_loads_beside(observation, steps) if workload is None else None
    if bound is not None:
        text = f"other threads and processes work for {loaded_beside_ms(observation):.1f} ms a step"
        text = f"{text} on the cores that the step computes on{the_busiest(observation)}"
        return hint(text, evidence, fixes, bound, sweep=True)
    return ok(f"loading takes {steps.etl_ms:.2f} ms a step, hidden behind the step", *evidence)


def by_listening(loop: Iterations) -> Outcome:
    """Of a loop in which nothing was traced: whether results were there when a batch came tells
    whether the device had anything left to compute.
    """
    evidence, fixes = _listened.waiting_facts(loop), for_script()
    text = f"the loop waits {loop.etl_ms:.1f} ms an iteration for its batches"
    if _listened.is_little(loop, loop.etl_ms):
        return ok(text, *evidence)
    if loop.idle_etl_ms is None:
        why = "whether the device computes meanwhile is told where step() is given a score"
        return hint(f"{text}; {why}", evidence, fixes)
    idle_ms = _listened.idle_ms(loop)
    if _listened.is_little(loop, idle_ms):
        return ok(f"{text}, while the device computes", *evidence)
    text = f"{text}; the device is idle for {idle_ms:.1f} ms of it"
    return issue(text, evidence, fixes, _listened.without_waiting(loop))
