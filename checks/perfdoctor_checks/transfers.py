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
An array that is handed to jax outside of these calls, and of which little has changed since the
last time, is found in the sampled stacks; what it costs is estimated by the long copies of the
trace, where new data are far smaller. What is no new data counts from 1 MiB. What it costs in the
calls is measured on the captured step, with the state and the constants on the device; else
estimated by the copying, and the waiting for a state that is fetched, as far as the device idles
meanwhile. What else is copied before the calls can't be told apart; where an accelerator idles for
a good part of the step while the thread that makes the calls copies, a thread that copies a step
ahead would spare that. Else it is a hint: a CPU's cores would do that work themselves. Where an
accelerator idles while new data are copied in the calls, the captured step is run with such a
thread. Arrays that the program holds as constants are counted in its text.

How to fix
----------
`jax.device_put` what does not change, once, before the loop; keep the state on the device, and
fetch it only where it is saved. Pass large constants as arguments.

References
----------
JAX, "Transfer guard": it finds the lines (`jax_transfer_guard="log"`), but not reads on a CPU.
"""

from perfdoctor import Observation, Outcome, hint, issue, needed, of_host_work, ok, sized
from perfdoctor_checks._copies import ahead, from_host_again, resting, takes_time
from perfdoctor_checks._limits import GOOD_PART
from perfdoctor_checks._uploads import (
    at_rest,
    before_the_calls,
    constants,
    facts,
    handed_again,
    is_held_up,
    sizes,
    summary,
    unseen,
)

ID = "transfers"
NEEDS = ("steps",)


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
    if not takes_time(steps, stale):
        if again := handed_again(observation, steps, evidence):
            return again
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
    gain = of_host_work(observation, gain)
    return issue(text, [*evidence, *sizes(stale)], [advice], gain)
