"""Waits of the host for results: how often, where, and what they hold up."""

from perfdoctor import Change, Evidence, Fix, Gain, Observation, Steps, on_cpu, place, spared
from perfdoctor_checks._copies import from_host_again, takes_time

RARELY = 50
"""Steps: as often as a loss is worth reading."""
FEWER_CALLS = Fix(
    summary="compute more in each call, so that it waits for fewer",
    how="step several environments at once; or write them in jax, and jax.lax.scan over the steps",
)
"""The fix for results that the next call is made of."""


def answers_others(observation: Observation) -> bool:
    """Whether the step carries no state from call to call, beside the main thread: a server's."""
    calls = observation.calls
    if calls is None or calls.in_main_thread:
        return False
    return not calls.carries_state


def of_library(name: str) -> Fix:
    """A library's own way, which costs nothing where the host prepares in another thread."""
    how = "jax.jit, with eqx.partition and eqx.combine" if name == "equinox" else "jax.jit"
    return Fix(summary=f"call the step without {name}'s own wrapper", how=how)


def round_trips(observation: Observation, steps: Steps) -> bool:
    """Whether the state, or where no calls were seen most of it, comes from the host: a matter of
    transfers, not of reading.
    """
    calls = observation.calls
    if calls is not None:
        leaves = from_host_again(steps, calls)
        return takes_time(steps, [leaf for leaf in leaves if leaf.role == "state"])
    program = observation.program
    if program is None:
        return False
    data, all_of_it = len(program.data), len(program.arguments)
    return (data + all_of_it) / 2 < steps.uploads <= 2 * all_of_it


def own_work_ms(steps: Steps) -> float:
    """What the host does besides waiting."""
    return max(0.0, steps.time_ms - steps.wait_ms)


def overlapped(observation: Observation, steps: Steps) -> Gain:
    """The gain if the longer of device and host were all that a step takes; a CPU's cores they
    share. Twice as much at most: threads that sleep must be woken, which takes what is not seen.
    What goes to the device again and again is waited for by the device, too.
    """
    copied_ms = min(steps.upload_ms, steps.exposed_wait_ms) if steps.handed_again else 0.0
    longer_ms = max(steps.device_busy_ms + copied_ms, own_work_ms(steps))
    if on_cpu(observation):
        longer_ms = max(longer_ms, steps.cpu_ms / max(1.0, observation.host.usable_cores))
    idle_ms = max(0.0, steps.time_ms - longer_ms)
    return spared(steps.time_ms, idle_ms, idle_ms / 2, 2 * idle_ms)


def summary(steps: Steps) -> str:
    """How often, where, and what it holds up."""
    text = f"the host waits for a result {steps.waits:.1f} times a step"
    if steps.wait_places:
        where = steps.wait_places[0]
        text += f", most in {where.function}() ({place(where.file, where.line)})"
    return (
        f"{text}; meanwhile nothing is prepared, and the device idles {steps.idle_ms:.2f} ms a step"
    )


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    return [
        Evidence("waits", round(steps.waits, 2), "a step", "trace"),
        Evidence("waiting", steps.wait_ms, "ms/step", "trace"),
        Evidence("host's own work", own_work_ms(steps), "ms/step", "trace"),
        Evidence("device busy", steps.device_busy_ms, "ms/step", "trace"),
        *(
            Evidence(
                f"waits in {each.function}",
                round(each.share, 3),
                "share",
                place(each.file, each.line),
            )
            for each in steps.wait_places
        ),
    ]


def fix(observation: Observation) -> Fix:
    """Read more rarely."""
    workload = observation.target.workload
    if workload is not None and 0 < workload.training.log_every < RARELY:
        return Fix(
            summary=f"read the loss every {RARELY} steps",
            how=f"[training] log_every = {RARELY}",
            change=Change(workload={"training.log_every": RARELY}),
        )
    return Fix(
        summary=f"read results every {RARELY} steps, or those of the step before",
        how=f"if step % {RARELY} == 0: print(float(loss))",
        change=Change(step={"waits": 1 / RARELY}),
    )
