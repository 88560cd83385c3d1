"""Threads that share the cores: those of XLA, and the pools of BLAS and OpenMP."""

import math

from perfdoctor import Change, Evidence, Fix, Observation, Threads, on_cpu, set_variables
from perfdoctor_checks._limits import FORCED_SWITCHES, SEVERAL
from perfdoctor_checks._reasons import Reason

POOL = "tf_XLAEigen"
"""The name of the threads of XLA's pool on the CPU."""
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Environment variables that set the number of a library's threads."""


def pool_of(threads: Threads) -> int:
    """XLA's threads for single operations."""
    return sum(count for name, count in threads.by_name.items() if name.startswith(POOL))


def affinity(observation: Observation) -> list[Reason]:
    """Fewer cores than the machine has, where the training computes on them; a trial tells whether
    it may have the others, and what they are worth.
    """
    host = observation.host
    if not on_cpu(observation) or not observation.target.runs_users_code:
        return []
    if host.affinity_cores >= host.logical_cores or host.quota_cores is not None:
        return []
    every = tuple(range(host.logical_cores))
    fix = Fix(
        summary="let the training have the other cores too, if nobody else needs them",
        how=f"taskset -c 0-{host.logical_cores - 1} python …  # or without taskset, and without "
        "os.sched_setaffinity in the code",
        change=Change(cores=every),
    )
    count = f"{host.affinity_cores} of this machine's {host.logical_cores} cores"
    return [(f"the training may run on {count}", fix)]


def xla(observation: Observation, threads: Threads) -> list[Reason]:
    """XLA's pool, where it computes on the CPU; with several devices each has its own threads."""
    cores, nproc = observation.host.usable_cores, observation.environment.get("NPROC", "")
    backend = observation.backend
    if backend is not None and (backend.platform != "cpu" or len(backend.devices) > 1):
        return []
    count = pool_of(threads) or (int(nproc) if nproc.isdigit() else 0)
    allowed = max(1, int(cores))
    is_asked = nproc.isdigit()
    if not count or allowed <= count <= math.ceil(cores) or (count < allowed and not is_asked):
        return []
    all_are_ours = bool(nproc) and observation.host.affinity_cores <= math.ceil(cores)
    right = None if all_are_ours else str(allowed)
    if nproc == right:
        return []
    whose = "there are cores" if all_are_ours else "the quota has cores"
    fix = Fix(
        summary=f"let XLA have as many threads as {whose}",
        how=set_variables(observation, {"NPROC": right}),
        change=Change(env={"NPROC": right}),
    )
    text = f"XLA computes with {count} thread{'s' * (count != 1)} on {cores:g} cores"
    return [(f"{text} (NPROC={nproc})" if all_are_ours else text, fix)]


def numerics(observation: Observation, threads: Threads) -> list[Reason]:
    """Pools of BLAS and OpenMP in every process, where they compete."""
    cores, env = observation.host.usable_cores, observation.environment
    largest = max(threads.pools, key=lambda pool: pool.threads, default=None)
    if largest is None or threads.forced_switches < FORCED_SWITCHES * max(1.0, cores):
        return []
    callers = observation.steps.threads if observation.steps is not None else 1
    of_our_own = threads.ran - pool_of(threads) - callers
    ran = threads.child_threads if threads.children else of_our_own
    wanted = largest.threads * threads.children if threads.children else ran
    if largest.threads == 1 or min(wanted, ran) < SEVERAL * cores or env.get(VARIABLES[0]) == "1":
        return []
    change: dict[str, str | None] = {
        name: "1" for name in VARIABLES if name == VARIABLES[0] or name in env
    }
    owners = f"{threads.children} processes" if threads.children else "the training"
    fix = Fix(
        summary="one thread of numerics for each process",
        how=set_variables(observation, change),
        change=Change(env=change),
        changes_results="numerics",
    )
    pool = f"{largest.library} has {largest.threads} threads in {owners}"
    return [(f"{pool}; {ran} of them ran on {cores:g} cores", fix)]


def facts(observation: Observation, threads: Threads) -> list[Evidence]:
    """Cores, pools, processes, forced switches, and the variables."""
    host, tasks = observation.host, "/proc/<pid>/task"
    found = [
        Evidence("cores", host.usable_cores, "cores", "affinity and quota"),
        Evidence("XLA's threads", pool_of(threads), "threads", f"{tasks}/*/comm"),
        *(
            Evidence(pool.library, pool.threads, "threads", "threadpoolctl")
            for pool in threads.pools
        ),
        Evidence("threads that ran", threads.ran, "threads", tasks),
        Evidence("other processes", threads.children, "processes", "psutil"),
        Evidence("their threads that ran", threads.child_threads, "threads", tasks),
        Evidence(
            "forced switches",
            round(threads.forced_switches, 1),
            "per second",
            "nonvoluntary_ctxt_switches",
        ),
    ]
    return found + [
        Evidence(name, observation.environment[name], "", "environment")
        for name in ("NPROC", *VARIABLES)
        if name in observation.environment
    ]
