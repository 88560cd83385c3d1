"""Arrays travel between host and device in each step that could stay there.

What it finds
-------------
Arguments of the step that come from the host each time although they are no new data: a table or a
mask that is the same in each step, or the state that was fetched after the step before, changed by
NumPy perhaps, and handed over or put back on the device.

Why it costs
------------
A copy to a GPU passes PCIe at 10 to 50 GB/s, a hundredth of the device's own memory; and to fetch a
result the host waits until the step has ended.

How it is measured
------------------
The calls of a step were seen, argument by argument: a host array that an earlier call returned is
state, one that is the same as in the step before is a constant; new data are uploaded by right.
Arrays that are new each time, in a run that is like a run of results which nothing takes, are a
state that was made anew; where no operations are called for it, that was done on the host. So is
a large array that is another one in each step, with the same values, where copying takes time.
What is no new data counts from 1 MiB. What it costs is measured on the captured step, with the
state and the constants on the device; else estimated by the copying, and the waiting for a state
that is fetched, as far as the device idles meanwhile. What is copied before the calls can't be told
apart; where an accelerator idles for a good part of the step while the thread that makes the calls
copies, a thread that copies a step ahead would spare that. Else it is a hint: a CPU's cores would
do that work themselves. Where an accelerator idles while new data are copied in the calls, the
captured step is run with such a thread. Arrays that the program holds as constants are counted in
its text.

How to fix
----------
`jax.device_put` what does not change, once, before the loop; keep the state on the device, and
fetch it only where it is saved. Pass large constants as arguments.

References
----------
JAX, "Transfer guard": it finds the lines (`jax_transfer_guard="log"`), but not reads on a CPU.
"""

from collections.abc import Sequence

from perfdoctor import (
    Evidence,
    Gain,
    Leaf,
    Observation,
    Outcome,
    Steps,
    hint,
    issue,
    needed,
    not_measured,
    ok,
    on_cpu,
    sized,
    spared,
)
from perfdoctor_checks._copies import AS_ARGUMENT, ahead, copies, from_host_again, resting
from perfdoctor_checks._limits import CACHES, GOOD_PART, LEAST_SHARE, MIB

ID = "transfers"
NEEDS = ("steps",)
SHOWN = 3
"""Arguments that are named at most."""


def check(observation: Observation) -> Outcome:
    """What comes from the host though it is no new data, as the calls of a step were seen."""
    steps, calls = needed(observation.steps), observation.calls
    evidence = facts(steps)
    if calls is None:
        return unseen(observation, steps, evidence)
    leaves = [leaf for call in calls.calls for leaf in call.leaves]
    handed = [leaf for leaf in leaves if leaf.kind == "host"]
    stale = from_host_again(steps, calls)
    stale.sort(key=lambda leaf: -leaf.bytes)
    new_bytes = sum(leaf.bytes for leaf in handed if leaf.role == "new")
    size = sum(leaf.bytes for leaf in stale)
    by_hand = any(leaf.remade and leaf.role == "state" for leaf in stale)
    if size < MIB and not (by_hand and copies(steps)):  # many small arrays take time as well
        if min(steps.upload_ms, steps.idle_ms) >= GOOD_PART * steps.time_ms:
            return before_the_calls(observation, steps, evidence)
        text = f"{len(handed)} host arrays a step, {sized(new_bytes)} of them new data"
        if large := constants(observation, evidence):
            return large
        if new_bytes and is_held_up(observation, steps):
            fix = ahead(observation, in_calls=True)
            return hint(f"{text}, copied while the device idles", evidence, [fix])
        return ok(text, *evidence)
    fetched = any(leaf.role == "state" for leaf in stale)
    gain = at_rest(steps, size / max(1, size + new_bytes), fetched=fetched)
    text = summary(stale, size, fetched=fetched)
    advice = resting(observation, fetched, by_hand=by_hand)
    return issue(text, [*evidence, *sizes(stale)], [advice], gain)


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
    return issue(text, evidence, fixes, gain)


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
            f"arrays ({names}); to fetch it, the host waits for the step"
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
