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
computes. On a CPU with all cores in use, loading behind the step makes it slower too: alone, the
step would need between its processor time spread over all cores and what it needs now.

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
    Change,
    Evidence,
    Fix,
    Observation,
    Outcome,
    Steps,
    Workload,
    estimated,
    issue,
    needed,
    ok,
    place,
)

ID = "etl"
NEEDS = ("steps",)
ENOUGH_LEFT, NONE_LEFT, LEAST_LOST = 0.7, 0.9, 0.1
"""Of the cores' time while the device computes: where less is in use, a core takes loading over for
nothing; in ill scripts of tests/clinic 0.89 to all of it is. Of the step: what loading must cost
in all, where it takes cores, to be worth a word."""
MAYBE, SURELY = (0.75, 0.88), (0.85, 0.95)
"""Of the step: where the main thread loads so long, or does anything but dispatch and wait so long,
the device waits for it and not it for the device, even if sharing its cores keeps the device busy
all the while. Ill scripts of tests/clinic load for 0.85 to 0.97 of the step; healthy ones that
augment behind it, and then wait for it, for up to 0.83, and are at work for up to 0.89.
"""
WAITING = 0.15
"""Of the step: where the device idles so long for loading, it waits for it; in healthy scripts of
tests/clinic for 0.04 at most."""
UNEVEN = 1.5
"""Times the n-th part; measured on 2 cores with the loaders of tests/clinic (1.3 to 1.7)."""
OFTEN, MOST = 0.5, 0.98
"""Of the steps: if so many end in a wait, most of the overlap is gone. Of the step: what can be
saved."""
LEFT_OVER = Fix(
    summary="make the preparation itself cheaper: it has all cores already",
    how="decode once and save the arrays, augment less or on the device, read from a faster disk",
)
FEWEST_MS, LEAST_SHARE, SURE_SHARE = 0.05, 0.01, 0.03
"""Below the first two the loss is no larger than the sampler's own grain. The last one is half of
what the device of a healthy script waits now and then, where both need about the same time."""


def check(observation: Observation) -> Outcome:
    """Reads the exposed part of the data loading from the steps."""
    steps = needed(observation.steps)
    evidence = facts(steps)
    exposed_ms, taken_ms = exposed_alone_ms(steps), cores_taken_ms(observation, steps)
    if steps.exposed_etl_ms > exposed_ms == taken_ms == 0:
        return ok(
            "loading shows only because the host waits for each step: see host-sync", *evidence
        )
    workload, cores = observation.target.workload, max(1, round(observation.host.usable_cores))
    lost_ms = exposed_ms + taken_ms
    if lost_ms < max(FEWEST_MS, LEAST_SHARE * steps.time_ms):
        return ok(f"loading takes {steps.etl_ms:.2f} ms a step, hidden behind the step", *evidence)
    error_ms = 2 * steps.standard_error_ms
    known = max(0.0, 1 - error_ms / max(steps.time_ms, FEWEST_MS))
    waiting_ms = exposed_ms / 2 - error_ms
    waiting_ms = waiting_ms if waiting_ms >= SURE_SHARE * steps.time_ms else 0.0
    sure_ms = waiting_ms + (taken_ms / 2 * known if host_bound(steps, SURELY) else 0.0)
    gain = estimated(
        speedup=without(steps, lost_ms),
        low=without(steps, sure_ms),
        high=without(steps, max(lost_ms, steps.time_ms - least_ms(observation, steps))),
    )
    fixes = for_script(taken_ms > exposed_ms) if workload is None else for_workload(workload, cores)
    return issue(summary(steps, taken_ms), evidence, fixes, gain)


def exposed_alone_ms(steps: Steps) -> float:
    """Of the loading that the device waits for, what it would wait for too if the host did not wait
    for each step: then the step hides the host's work, as far as it takes longer.
    """
    if host_bound(steps) or steps.synchronized < OFTEN or steps.waits_in:
        return steps.exposed_etl_ms
    own_work_ms = steps.time_ms - steps.wait_ms
    return min(steps.exposed_etl_ms, max(0.0, own_work_ms - steps.device_busy_ms))


def host_bound(steps: Steps, limits: tuple[float, float] = MAYBE) -> bool:
    """Whether the device waits for the main thread, busy as it may look."""
    loading, at_work = limits
    return (
        steps.etl_ms >= loading * steps.time_ms
        or at_work_ms(steps) >= at_work * steps.time_ms
        or (waits_for_data(steps) and steps.synchronized < OFTEN)
    )


def waits_for_data(steps: Steps) -> bool:
    """Whether the device idles so much while the main thread loads, that it is no chance."""
    return steps.exposed_etl_ms >= WAITING * steps.time_ms


def at_work_ms(steps: Steps) -> float:
    """What the main thread does besides dispatching, which may block, and waiting."""
    return steps.time_ms - steps.dispatch_ms - steps.wait_ms


def without(steps: Steps, saved_ms: float) -> float:
    """The speedup if a step took so much less."""
    return steps.time_ms / (steps.time_ms - min(saved_ms, MOST * steps.time_ms))


def cores_taken_ms(observation: Observation, steps: Steps) -> float:
    """What loading behind a step on the CPU costs it: where all cores are busy, its share of them.

    Alone, the device needs no more than it does now, and no less than its processor time on all
    cores: their geometric mean is as likely too long as too short. And at most the n-th part of a
    millisecond for each that loading takes of one of n cores, and somewhat more: an operation waits
    for the last of its threads, and that is the one whose core was taken.
    """
    backend, cores = observation.backend, max(1.0, observation.host.usable_cores)
    on_cpu = backend is not None and backend.platform == "cpu"
    if not on_cpu or not host_bound(steps):
        return 0.0  # the device is behind: it may be slower for it, but how much is not known
    busy_ms, idle_ms = steps.device_busy_ms, max(0.0, steps.time_ms - steps.device_busy_ms)
    host_alone_ms = max(0.0, idle_ms - steps.exposed_wait_ms)
    occupied = (steps.cpu_ms - host_alone_ms) / max(cores * busy_ms, FEWEST_MS)
    scarce = min(1.0, max(0.0, (occupied - ENOUGH_LEFT) / (NONE_LEFT - ENOUGH_LEFT)))
    spread_ms = min(busy_ms, max(0.0, steps.cpu_ms - at_work_ms(steps)) / cores)
    hidden_ms = max(0.0, steps.etl_ms - steps.exposed_etl_ms)
    taken_ms = min(
        scarce * (busy_ms - math.sqrt(busy_ms * spread_ms)),
        hidden_ms * min(1.0, UNEVEN / cores),
    )
    lost_ms = taken_ms + steps.exposed_etl_ms
    return taken_ms if lost_ms >= LEAST_LOST * steps.time_ms else 0.0


def least_ms(observation: Observation, steps: Steps) -> float:
    """What a step takes at least without any loading: its other work, on all devices or cores."""
    backend = observation.backend
    if backend is not None and backend.platform != "cpu":
        return steps.device_busy_ms
    return max(0.0, steps.cpu_ms - steps.etl_ms) / max(1.0, observation.host.usable_cores)


def summary(steps: Steps, taken_ms: float) -> str:
    """Where the main thread is while the device waits, or shares its cores."""
    waits = f"the device waits {steps.exposed_etl_ms:.1f} ms a step for data"
    if taken_ms > 0 and steps.exposed_etl_ms < LEAST_LOST * steps.time_ms:
        waits = f"loading takes {steps.etl_ms:.1f} ms a step of the cores that the step computes on"
    if not steps.etl_places:
        return waits
    busiest = steps.etl_places[0]
    where = place(busiest.file, busiest.line)
    share = f"{busiest.share:.0%} of the main thread's time"
    return f"{waits}: {share} is in {busiest.function}() ({where})"


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    trace = "trace and stack samples"
    return [
        Evidence(name="ETL, device idle", value=steps.exposed_etl_ms, unit="ms/step", source=trace),
        Evidence(name="ETL, in all", value=steps.etl_ms, unit="ms/step", source=trace),
        Evidence(name="device busy", value=steps.device_busy_ms, unit="ms/step", source="trace"),
        *(
            Evidence(
                name=f"main thread in {each.function}",
                value=round(each.share, 3),
                unit="share",
                source=place(each.file, each.line),
            )
            for each in steps.etl_places
        ),
    ]


def for_script(cores_are_full: bool) -> list[Fix]:
    """What to write: more workers only where a core is left for them."""
    if cores_are_full:
        return [LEFT_OVER]
    return [
        Fix(
            summary="prepare batches ahead, in other threads or processes",
            how="grain: dataset.to_iter_dataset(grain.ReadOptions(num_threads=4, "
            "prefetch_buffer_size=8)); torch: DataLoader(..., num_workers=4, "
            "prefetch_factor=2)",
        )
    ]


def for_workload(workload: Workload, cores: int) -> list[Fix]:
    """Pre-saved records, more prefetch, worker processes: as far as they are not in use."""
    data, found = workload.data, []
    cores = min(cores, 256)
    prefetch, threads = max(4, data.prefetch), max(cores, data.threads)
    if data.source == "images":
        found.append(
            Fix(
                summary="decode the files once and read the saved arrays",
                how='[data] source = "records"',
                change=Change(workload={"data.source": "records"}),
            )
        )
    if (prefetch, threads) != (data.prefetch, data.threads):
        found.append(
            Fix(
                summary="prepare batches ahead of the step, in threads",
                how=f"[data] prefetch = {prefetch}, threads = {threads}",
                change=Change(workload={"data.prefetch": prefetch, "data.threads": threads}),
            )
        )
    if data.workers < cores:
        found.append(
            Fix(
                summary="prepare batches in worker processes",
                how=f"[data] prefetch = {max(2, data.prefetch)}, workers = {cores}",
                change=Change(
                    workload={"data.prefetch": max(2, data.prefetch), "data.workers": cores}
                ),
            )
        )
    return found or [LEFT_OVER]
