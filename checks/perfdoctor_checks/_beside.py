"""Workers, and threads and processes that never rest, beside the step."""

import math

from perfdoctor import Change, Fix, Observation
from perfdoctor_checks._limits import FEW, LIMIT_OF_WORKERS

Reason = tuple[str, Fix]
"""Why there are too many threads, or too few, and what to do."""


def workers(observation: Observation) -> list[Reason]:
    """Worker processes of the workload's data."""
    cores, workload = observation.host.usable_cores, observation.target.workload
    if workload is None or workload.data.workers <= math.ceil(cores):
        return []
    allowed = min(LIMIT_OF_WORKERS, max(1, int(cores)))
    fix = Fix(
        summary="as many data workers as cores",
        how=f"[data] workers = {allowed}",
        change=Change(workload={"data.workers": allowed}),
    )
    return [(f"{workload.data.workers} data workers share {cores:g} cores", fix)]


def restless(observation: Observation) -> list[Reason]:
    """Threads and processes of the program that take what they get of the cores, or of Python's
    interpreter, whatever the step does; what the step would take without them is the most that
    resting can gain.
    """
    calls, steps, cores = observation.calls, observation.steps, observation.host.usable_cores
    if calls is None or steps is None:
        return []
    found = calls.free_running(steps.etl_ms)
    holding = any(each.holds_interpreter for each in found)
    if not holding and sum(each.cores for each in found) + 1 <= cores:
        return []
    fix = Fix(
        summary="let what works beside the step rest when it is ahead, and have less of it",
        how="queue.put(item)  # waits while the queue is full, where put_nowait and a retry do not",
        change=Change(step={"restless": 0}, is_bound=True),
    )
    kinds = {"processes" if each.is_process else "threads" for each in found}
    kind = " and ".join(sorted(kinds, reverse=True))
    names = ", ".join(sorted(each.name for each in found)[:FEW])
    names += ", …" if len(found) > FEW else ""
    effect = ", and hold Python's interpreter" if holding else f", on {cores:g} cores"
    text = f"{len(found)} {kind} of the program work on while the step stands still{effect}"
    return [(f"{text}: {names}", fix)]
