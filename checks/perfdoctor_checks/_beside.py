"""Workers, and threads and processes that never rest, beside the step."""

import math
from collections.abc import Sequence

from perfdoctor import Change, Fix, Observation, Restless
from perfdoctor_checks._limits import FEW, LIMIT_OF_WORKERS
from perfdoctor_checks._reasons import Reason


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
    found = [each for each in crowding(observation) if not each.is_program]
    if not found:
        return []
    fix = Fix(
        summary="let what works beside the step rest when it is ahead, and have less of it",
        how="queue.put(item)  # waits while the queue is full, where put_nowait and a retry do not",
        change=Change(step={"restless": 0}, is_bound=True),
    )
    one, several = ("process", "thread"), ("processes", "threads")
    kinds = {(several if len(found) > 1 else one)[not each.is_process] for each in found}
    kind = " and ".join(sorted(kinds, reverse=True))
    return [(f"{len(found)} {kind} of the program {told(observation, found)}", fix)]


def programs(observation: Observation) -> list[Reason]:
    """Other programs that the training has started, and that never rest."""
    found = [each for each in crowding(observation) if each.is_program]
    if not found:
        return []
    fix = Fix(
        summary="start these programs at another time, or keep them off the training's cores",
        how='subprocess.Popen(["nice", "-n", "19", …])  # or with `taskset -c`, cores of its own',
        change=Change(step={"restless": 0}, is_bound=True),
    )
    count = f"{len(found)} other program{'s' * (len(found) != 1)}"
    return [(f"{count} that the training has started {told(observation, found)}", fix)]


def crowding(observation: Observation) -> Sequence[Restless]:
    """What never rests beside the step, if there are too few cores for all, or too few turns of the
    interpreter.
    """
    calls, steps, cores = observation.calls, observation.steps, observation.host.usable_cores
    if calls is None or steps is None:
        return ()
    found = calls.free_running(steps.etl_ms)
    is_held = any(each.holds_interpreter for each in found)
    return found if is_held or sum(each.cores for each in found) + 1 > cores else ()


def told(observation: Observation, found: Sequence[Restless]) -> str:
    """What they do to the step, and their names."""
    is_held = any(each.holds_interpreter for each in found)
    cores = f"{observation.host.usable_cores:g} cores"
    effect = ", and hold Python's interpreter" if is_held else f", on {cores}"
    names = ", ".join(sorted(each.name for each in found)[:FEW])
    names += ", …" if len(found) > FEW else ""
    verb = "work" if len(found) > 1 else "works"
    return f"{verb} on while the step stands still{effect}: {names}"
