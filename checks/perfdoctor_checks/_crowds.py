"""A pool of Python threads that outnumber the cores, timed in the running program."""

from perfdoctor import Evidence, Fix, Gain, Observation, Outcome, ThreadPool, gain_of, issue
from perfdoctor_checks._limits import MOSTLY


def crowd(observation: Observation) -> tuple[ThreadPool, Gain] | None:
    """Such a pool, and what fewer tasks at a time surely gained; None if they gained nothing, or
    there is none.
    """
    pool = observation.calls.pool if observation.calls is not None else None
    gain = gain_of([pool.log_ratios]) if pool is not None else None
    return (pool, gain) if pool is not None and gain is not None and gain.low > 1 else None


def told(observation: Observation, evidence: list[Evidence]) -> Outcome | None:
    """The issue, if there is one."""
    found = crowd(observation)
    if found is None:
        return None
    pool, gain = found
    fix = Fix(
        summary="as many threads in the pool as cores",
        how=f"ThreadPoolExecutor(max_workers={pool.at_a_time})",
    )
    name = f"{pool.threads} threads of {pool.name}" if pool.name else f"{pool.threads} threads"
    text = f"{name} work on {observation.host.usable_cores:g} cores"
    fewer = f"× with {pool.at_a_time} tasks at a time"
    speed = Evidence("steps a second", round(gain.speedup, 2), fewer, "the run, in turns")
    return issue(text, [speed, *evidence], [fix], gain)


def explains(observation: Observation, waiting_ms: float, step_ms: float) -> bool:
    """Whether a wait for data is there, most of which such a pool is the cause of."""
    found = crowd(observation)
    if found is None:
        return False
    _, gain = found
    return 0 < MOSTLY * waiting_ms <= step_ms * (1 - 1 / gain.speedup)
