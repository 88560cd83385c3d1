"""A loop that sleeps while the device idles."""

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Observation,
    Outcome,
    Steps,
    hint,
    issue,
    needed,
    of_host_work,
    place,
    spared,
)
from perfdoctor_checks._limits import LEAST_SHARE


def sleeps(observation: Observation, steps: Steps) -> bool:
    """Whether the thread that makes the steps sleeps while the device idles: the main thread, of
    which the stacks tell, may wait for another one that trains.
    """
    calls = observation.calls
    makes_steps = calls is not None and calls.in_main_thread and calls.threads == 1
    return makes_steps and steps.exposed_sleep_ms >= LEAST_SHARE * steps.time_ms


def asleep(observation: Observation, steps: Steps) -> Outcome:
    """The loop sleeps while the device idles: until a result is ready, say, or to keep a pace."""
    slept_ms = steps.exposed_sleep_ms
    text = f"the loop sleeps for {slept_ms:.2f} ms a step while the device idles"
    if steps.sleep_places:
        where = steps.sleep_places[0]
        text += f", in {where.function}() ({place(where.file, where.line)})"
    evidence = Evidence("asleep, device idle", round(slept_ms, 3), "ms/step", "stacks")
    calls = needed(observation.calls)
    if calls.threads_cpu_ms + calls.children_cpu_ms >= LEAST_SHARE * steps.time_ms:
        return hint(f"{text}; it may wait for what other threads or processes do", [evidence])
    fix = Fix(
        summary="do not sleep in the loop that trains",
        how="leave time.sleep(…) out; wait, watch or ask for data in another thread or process",
        change=Change(step={"sleeping": 0.0}, is_bound=True),
    )
    gain = spared(steps.time_ms, slept_ms, slept_ms / 2, slept_ms)
    return issue(text, [evidence], [fix], of_host_work(observation, gain))
