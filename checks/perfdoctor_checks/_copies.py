"""What comes from the host in each step and is no new data, and what spares the copies."""

from collections.abc import Sequence

from msgspec import structs

from perfdoctor import Change, Fix, Leaf, Observation, StepCalls, Steps
from perfdoctor_checks._limits import LEAST_SHARE, MIB, MOSTLY
from perfdoctor_checks._operations import STAGED

AHEAD = Fix(
    summary="copy new data a step ahead, and what is no new data once",
    how="batch = jax.device_put(batch)  # in the thread that loads; what stays: before the loop",
)
"""The fix for what is new in each step."""
AS_ARGUMENT = Fix(
    summary="pass large arrays as arguments, not from the enclosing scope",
    how="step = jax.jit(lambda state, batch, table: …)  # table = jax.device_put(table), once",
)
"""The fix for arrays that are part of the program."""


def from_host_again(steps: Steps, calls: StepCalls) -> list[Leaf]:
    """Arguments of a step that come from the host though they are no new data."""
    leaves = [leaf for call in calls.calls for leaf in call.leaves]
    handed = [leaf for leaf in leaves if leaf.kind == "host" and leaf.role != "new"]
    return [*handed, *put_back(steps, calls), *put_anew(steps, calls)]


def takes_time(steps: Steps, leaves: Sequence[Leaf]) -> bool:
    """Whether it is worth a word that these come from the host: by their size; of a state that is
    put back by hand, many small arrays take time as well.
    """
    by_hand = any(leaf.remade and leaf.role == "state" for leaf in leaves)
    return sum(leaf.bytes for leaf in leaves) >= MIB or (by_hand and copies(steps))


def put_back(steps: Steps, calls: StepCalls) -> list[Leaf]:
    """State that is put back on the device in each step, after something was done with it on the
    host: it waits for the results, or copies. What is rather made by operations there is none.
    """
    found = [leaf for leaf in on_device(calls) if leaf.remade and leaf.role == "state"]
    probed = {call.function for call in calls.calls}  # a function of the user's may have that name
    copied = 0.0 if STAGED in probed else steps.calls.get(STAGED, 0.0)
    operations = steps.dispatches - len(calls.calls) - copied
    by_operations = operations >= len(found)
    on_host = steps.synchronized >= MOSTLY or copies(steps)
    return found if on_host and not by_operations else []


def put_anew(steps: Steps, calls: StepCalls) -> list[Leaf]:
    """What is put on the device in each step with the same values: where copying takes its time,
    and these are the most of what may be copied. Else it is rather made there.
    """
    found = [leaf for leaf in on_device(calls) if leaf.remade and leaf.role == "constant"]
    size = sum(leaf.bytes for leaf in found)
    new = sum(leaf.bytes for call in calls.calls for leaf in call.leaves if leaf.role == "new")
    return found if copies(steps) and size >= MOSTLY * (size + new) else []


def on_device(calls: StepCalls) -> list[Leaf]:
    """The arrays of jax among a step's arguments."""
    return [leaf for call in calls.calls for leaf in call.leaves if leaf.kind == "device"]


def copies(steps: Steps) -> bool:
    """Whether copying to the device takes a part of a step."""
    return steps.upload_ms >= LEAST_SHARE * steps.time_ms


def ahead(observation: Observation, *, in_calls: bool) -> Fix:
    """Tried where the loop is ours, in which a thread can do it; else on the step alone, if the
    data are copied in its calls.
    """
    if observation.target.parts is not None:
        return structs.replace(AHEAD, change=Change(step={"loading": "thread"}))
    return structs.replace(AHEAD, change=Change(step={"resident": "ahead"})) if in_calls else AHEAD


def resting(observation: Observation, state: bool, *, by_hand: bool = False) -> Fix:
    """The state stays where it is; what does not change is put there once.

    `by_hand`: whether it is changed on the host, which the step can do as well; what of the host's
    work that is can't be told apart, so that its gain is a bound.
    """
    workload = observation.target.workload
    if workload is not None and workload.training.state_on_host:
        return Fix(
            summary="keep the state on the device",
            how="[training] state_on_host = false",
            change=Change(workload={"training.state_on_host": False}),
        )
    if by_hand:
        return Fix(
            summary="keep the state on the device, and change it there",
            how="params = jax.tree.map(lambda p: jnp.clip(p, -1, 1), params)  # in the jitted step",
            change=Change(step={"resident": "state", "waits": 0.0, "handling": 0}, is_bound=True),
        )
    if state:
        return Fix(
            summary="keep the state on the device, and fetch it only to save it",
            how="state, loss = step(state, batch)  # no jax.device_get, np.asarray in the loop",
            change=Change(step={"resident": "state", "waits": 0.0}),
        )
    return Fix(
        summary="put what does not change on the device once, before the loop",
        how="table = jax.device_put(table)",
        change=Change(step={"resident": "state"}),
    )
