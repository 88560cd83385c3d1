"""What a listener's times say, where no step was traced: shared by the checks that read them."""

from perfdoctor import Evidence, Gain, Iterations, spared
from perfdoctor_checks._limits import LEAST_SHARE

SOURCE = "PerformanceListener"
ASK = "listener.diagnose() measures it"


def is_little(loop: Iterations, taken_ms: float) -> bool:
    """Whether it is too little of an iteration to matter."""
    return taken_ms <= LEAST_SHARE * loop.time_ms


def waiting_facts(loop: Iterations) -> list[Evidence]:
    """What is known of the wait for batches."""
    facts = [
        Evidence("ETL, in all", loop.etl_ms, "ms/iteration", SOURCE),
        Evidence("an iteration", loop.time_ms, "ms", SOURCE),
    ]
    if loop.idle_etl_ms is not None:
        facts.append(Evidence("ETL, device idle", loop.idle_etl_ms, "ms/iteration", SOURCE))
    return facts


def idle_ms(loop: Iterations) -> float:
    """What the device is likely to wait for batches: what an iteration takes more than its step."""
    most_ms = loop.idle_etl_ms or 0.0
    if loop.step_ms is None:
        return most_ms / 2
    return min(most_ms, max(0.0, loop.time_ms - loop.step_ms))


def without_waiting(loop: Iterations) -> Gain:
    """If the device did not wait for batches; half of that is sure, if a step alone was timed."""
    likely_ms = idle_ms(loop)
    sure_ms = likely_ms / 2 if loop.step_ms is not None else 0.0
    return spared(loop.time_ms, likely_ms, sure_ms, loop.etl_ms)


def without_collections(loop: Iterations, surely: float) -> Gain:
    """If nothing was collected; sure is what was lost where the device had run out of work."""
    idle = loop.idle_share or 0.0
    return spared(loop.time_ms, loop.gc_ms * (1 + idle) / 2, loop.gc_ms * idle * surely, loop.gc_ms)
