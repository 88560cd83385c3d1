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
    Evidence,
    Gain,
    Iterations,
    Observation,
    Outcome,
    Steps,
    estimated,
    hint,
    issue,
    needed,
    ok,
    on_cpu,
    place,
    spared,
    traced,
)
from perfdoctor_checks import _listened
from perfdoctor_checks._limits import LEAST_SHARE, MOSTLY
from perfdoctor_checks._loading import CHEAPER, for_script, for_workload

ID = "etl"
NEEDS = ("steps|iterations",)
LEAST_GAIN = 1 + CHEAPER.least_gain(0.0)
"""The gain from which on what is loaded behind a step is tried."""
WAITING = (
    "the device waits {:.1f} ms a step for data",
    "each step waits for its data, whose loading takes {:.1f} ms",  # more than the trace shows
)


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


def loaded_beside_ms(observation: Observation) -> float:
    """What other threads and processes take of the processor a step, those that never rest left
    out: what rests while the step stands still works for it.
    """
    calls = observation.calls
    if calls is None or calls.threads > 1 or calls.is_asked:
        return 0.0
    of_the_step = calls.threads_cpu_ms - calls.collecting_beside_ms + calls.children_cpu_ms
    return of_the_step - sum(each.cpu_ms for each in calls.restless)


def the_busiest(observation: Observation) -> str:
    """Which of them takes the most."""
    name = observation.calls.busiest_beside if observation.calls else ""
    return f", {name} the most" if name else ""


def without_what_loads_beside(observation: Observation, steps: Steps) -> Gain | None:
    """The most that a step gains whose cores do nothing else; None if that is too little to try."""
    beside_ms = loaded_beside_ms(observation)
    children_ms = observation.calls.children_cpu_ms if observation.calls else 0.0
    most = spared(steps.cpu_ms + children_ms, beside_ms, 0.0, 0.0).speedup
    if not on_cpu(observation) or most < LEAST_GAIN:
        return None
    return estimated(math.sqrt(most), 1.0, most)


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


def waiting_for_data_ms(observation: Observation, steps: Steps) -> float:
    """What the device waits for data.

    Where the host waits for each step, only what it would wait for without that too: then the step
    hides the host's work, as far as it takes longer. Where the host does not, and finds the last
    results computed at each call, the device waits for all that the host does.
    """
    if steps.synchronized >= MOSTLY and not steps.waits_in:
        own_work_ms = steps.time_ms - steps.wait_ms
        return min(steps.exposed_etl_ms, max(0.0, own_work_ms - steps.device_busy_ms))
    calls = observation.calls
    if calls is not None and not calls.runs_ahead and steps.threads == 1:
        return max(steps.exposed_etl_ms, steps.etl_ms)
    return steps.exposed_etl_ms


def without_waiting(observation: Observation, steps: Steps, waiting_ms: float) -> Gain:
    """The gain if a step took less by what the device waits; surely half of what the trace shows of
    it, less the noise. What only follows from the calls is to be tried.
    """
    seen_ms = min(waiting_ms, steps.exposed_etl_ms)
    sure_ms = max(0.0, seen_ms / 2 - 2 * steps.standard_error_ms)
    most_ms = max(waiting_ms, steps.time_ms - least_ms(observation, steps))
    return spared(steps.time_ms, waiting_ms, sure_ms, most_ms)


def least_ms(observation: Observation, steps: Steps) -> float:
    """What a step takes at least without any loading: its other work, on all devices or cores."""
    if not on_cpu(observation):
        return steps.device_busy_ms
    return max(0.0, steps.cpu_ms - steps.etl_ms) / max(1.0, observation.host.usable_cores)


def with_place(steps: Steps, text: str) -> str:
    """And in which function the main thread is meanwhile for most of the time."""
    if not steps.etl_places:
        return text
    busiest = steps.etl_places[0]
    where = place(busiest.file, busiest.line)
    share = f"{busiest.share:.0%} of the main thread's time"
    return f"{text}: {share} is in {busiest.function}() ({where})"


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    trace = "trace and stack samples"
    return [
        Evidence("ETL, device idle", steps.exposed_etl_ms, "ms/step", trace),
        Evidence("ETL, in all", steps.etl_ms, "ms/step", trace),
        Evidence("device busy", steps.device_busy_ms, "ms/step", "trace"),
        *(
            Evidence(
                f"main thread in {e.function}", round(e.share, 3), "share", place(e.file, e.line)
            )
            for e in steps.etl_places
        ),
    ]
