"""What the device waits for data, and what is loaded beside the step."""

import math

from perfdoctor import (
    Evidence,
    Gain,
    Observation,
    Steps,
    estimated,
    of_host_work,
    on_cpu,
    place,
    spared,
)
from perfdoctor_checks._limits import MOSTLY
from perfdoctor_checks._loading import CHEAPER

LEAST_GAIN = 1 + CHEAPER.least_gain(0.0)
"""The gain from which on what is loaded behind a step is tried."""
WAITING = (
    "the device waits {:.1f} ms a step for data",
    "each step waits for its data, whose loading takes {:.1f} ms",  # more than the trace shows
)


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
    gain = spared(steps.time_ms, waiting_ms, sure_ms, most_ms)
    return of_host_work(observation, gain)


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
