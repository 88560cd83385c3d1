"""Copies from the host in each step: what is copied, and how long that takes."""

from collections.abc import Sequence

from perfdoctor import (
    Evidence,
    Fix,
    Gain,
    Leaf,
    Observation,
    Outcome,
    Steps,
    hint,
    issue,
    not_measured,
    of_host_work,
    ok,
    on_cpu,
    place,
    sized,
    spared,
)
from perfdoctor_checks._copies import AS_ARGUMENT, ahead
from perfdoctor_checks._limits import CACHES, GOOD_PART, LEAST_SHARE, MIB
from perfdoctor_checks._operations import STAGED

SHOWN = 3
"""Arguments that are named at most."""
ONCE = Fix(
    summary="take what the step needs on the host, or put the array on the device once",
    how="rows = jnp.asarray(table[index])  # not jnp.asarray(table)[index]",
)
"""The fix for an array that is handed over outside of the step's calls, and is no new data."""


def before_the_calls(observation: Observation, steps: Steps, evidence: list[Evidence]) -> Outcome:
    """Of what is copied while the device idles: a finding where an accelerator waits for it, since
    the thread that makes the calls copies; a CPU's cores, or another thread, may do it by the way.
    """
    text = f"copying to the device takes {steps.upload_ms:.1f} ms a step, while it idles"
    fixes = [ahead(observation, in_calls=False)]
    lost_ms = min(steps.upload_ms, steps.exposed_dispatch_ms)
    if on_cpu(observation) or lost_ms < GOOD_PART * steps.time_ms:
        return hint(text, evidence, fixes)
    gain = spared(steps.time_ms, lost_ms, lost_ms / 2, lost_ms)
    return issue(text, evidence, fixes, of_host_work(observation, gain))


def handed_again(
    observation: Observation, steps: Steps, evidence: list[Evidence]
) -> Outcome | None:
    """Of host arrays that are no new data, and are handed over outside of the calls of the step:
    whole, say, to look up a few of their rows on the device.

    Another thread may copy them. Then the long copies are theirs, if all new data are far smaller.
    """
    found = sorted(steps.handed_again, key=lambda each: -each.bytes)
    if not found:
        return None
    are_long = largest_new(observation, steps) < GOOD_PART * found[0].bytes
    lost_ms = sum(each.place.share for each in found) * steps.time_ms
    lost_ms = min(max(lost_ms, steps.long_upload_ms if are_long else 0.0), steps.idle_ms)
    if lost_ms < LEAST_SHARE * steps.time_ms:
        return None
    where = place(found[0].place.file, found[0].place.line)
    text = (
        f"{sized(found[0].bytes)} that are no new data go to the device again and again, for "
        f"{lost_ms:.1f} ms a step: {found[0].dtype}{list(found[0].shape)} in {where}"
    )
    seen = [
        Evidence(
            place(each.place.file, each.place.line),
            round(each.bytes / MIB, 2),
            "MiB",
            f"{each.dtype}{list(each.shape)}, {each.unchanged:.0%} of it as in the call before",
        )
        for each in found[:SHOWN]
    ]
    copied_ms, worked_ms = (ms + lost_ms for ms in work_on_copies_ms(observation, steps))
    gain = spared(steps.time_ms, copied_ms, lost_ms / 2, worked_ms)
    gain = of_host_work(observation, gain)
    return issue(text, [*evidence, *seen], [ONCE], gain)


def largest_new(observation: Observation, steps: Steps) -> int:
    """The bytes of the largest array that is new data, wherever it is handed over."""
    calls = observation.calls.calls if observation.calls is not None else ()
    new = [leaf.bytes for call in calls for leaf in call.leaves if leaf.role == "new"]
    new += [each.bytes for each in steps.handed if not each.is_no_new_data]
    return max(new, default=0)


def work_on_copies_ms(observation: Observation, steps: Steps) -> tuple[float, float]:
    """What the device works a step on what was handed over: it copies it once more; and at most all
    that it computes besides the calls of the step. By the bytes that they move.
    """
    calls = observation.calls
    probed = {call.function for call in calls.calls} if calls is not None else set(steps.work)
    others = {name: share for name, share in steps.work.items() if name not in probed}
    at_least, at_most = others.get(STAGED, 0.0), sum(others.values())
    return at_least * steps.device_busy_ms, at_most * steps.device_busy_ms


def is_held_up(observation: Observation, steps: Steps) -> bool:
    """Whether a device of its own idles while calls are made, in which new data are copied."""
    idle_ms = min(steps.idle_ms, steps.exposed_dispatch_ms)
    return not on_cpu(observation) and idle_ms >= LEAST_SHARE * steps.time_ms


def unseen(observation: Observation, steps: Steps, evidence: list[Evidence]) -> Outcome:
    """The outcome where nobody saw the calls: the trace still tells what copying takes."""
    if steps.uploads < 1 or steps.upload_ms < LEAST_SHARE * steps.time_ms:
        text = f"{steps.uploads:.2g} host arrays a step, {steps.upload_ms:.2f} ms"
        return constants(observation, evidence) or ok(text, *evidence)
    why = observation.not_measured.get("calls", "the calls of a step were not seen")
    return not_measured(f"{why}, so it is not known which of its host arrays are no new data")


def summary(stale: Sequence[Leaf], size: int, *, fetched: bool) -> str:
    """What travels, and how large it is."""
    names = ", ".join(leaf.argument for leaf in stale[:SHOWN])
    names += ", …" if len(stale) > SHOWN else ""
    if fetched:
        return (
            f"the state comes from the host in each step: {sized(size)} in {len(stale)} "
            f"array{'s' * (len(stale) != 1)} ({names}); to fetch it, the host waits for the step"
        )
    return f"{sized(size)} that are no new data come from the host in each step: {names}"


def sizes(stale: Sequence[Leaf]) -> list[Evidence]:
    """The largest of them."""
    return [
        Evidence(
            leaf.argument,
            round(leaf.bytes / MIB, 2),
            "MiB",
            f"{leaf.role} {leaf.dtype}{list(leaf.shape)} among the arguments of a call",
        )
        for leaf in stale[:SHOWN]
    ]


def at_rest(steps: Steps, share: float, *, fetched: bool) -> Gain:
    """The gain without the copying, and without the waiting for what is fetched, while the device
    idles: half of it at least; at most, without all that the main thread does besides, which
    handles the arrays.

    `share`: of the bytes that are copied, those that need not be.
    """
    copying_ms = max(0.0, steps.upload_ms) * share
    waiting_ms = max(0.0, steps.exposed_wait_ms) if fetched else 0.0
    handling_ms = max(0.0, steps.exposed_other_ms) if fetched else 0.0
    lost_ms = min(steps.idle_ms, copying_ms + waiting_ms)
    most_ms = max(copying_ms, min(steps.idle_ms, copying_ms + waiting_ms + handling_ms))
    return spared(steps.time_ms, lost_ms, lost_ms / 2, most_ms)


def constants(observation: Observation, evidence: list[Evidence]) -> Outcome | None:
    """Large arrays that are part of the program's text."""
    program = observation.program
    if program is None or program.constant_bytes <= CACHES:
        return None
    size = round(program.constant_bytes / MIB, 1)
    text = f"{size:.0f} MiB of constants are part of the program: they cost compile time and memory"
    constant = Evidence("constants", size, "MiB", "StableHLO")
    return hint(text, [*evidence, constant], [AS_ARGUMENT])


def facts(steps: Steps) -> list[Evidence]:
    """What is handed over, and what that takes, if it was traced."""
    if not steps.is_traced:
        return []
    wait_ms = steps.exposed_wait_ms
    return [
        Evidence("host arrays", round(steps.uploads, 1), "a step", "trace"),
        Evidence("copying", steps.upload_ms, "ms/step", "trace"),
        Evidence("waiting, device idle", wait_ms, "ms/step", "trace"),
    ]
