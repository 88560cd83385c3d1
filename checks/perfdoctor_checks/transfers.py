"""Arrays travel between host and device in each step that could stay there.

What it finds
-------------
Arguments of the step that come from the host each time although they are no new data: a table or a
mask that is the same in each step, or the state that was fetched after the step before.

Why it costs
------------
A copy to a GPU passes PCIe at 10 to 50 GB/s, a hundredth of the device's own memory; and to fetch a
result the host waits until the step has ended.

How it is measured
------------------
The trace counts the host arrays that a step hands over, and what copying took. A batch is uploaded
by right: arguments whose leading size is the batch's. What exceeds them is looked up among the
program's arguments, and counts from 1 MiB. The estimate is the copying, and the waiting for a state
that is fetched, as far as the device idles meanwhile. Arrays that the program holds as constants
are counted in its text.

How to fix
----------
`jax.device_put` what does not change, once, before the loop; keep the state on the device, and
fetch it only where it is saved. Pass large constants as arguments.

References
----------
JAX, "Transfer guard": it finds the lines (`jax_transfer_guard="log"`), but not reads on a CPU.
"""

import re
from collections import Counter
from math import prod

from perfdoctor import (
    Argument,
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Program,
    Steps,
    estimated,
    hint,
    issue,
    needed,
    not_applicable,
    not_measured,
    ok,
)

ID = "transfers"
NEEDS = ("steps",)
MIB = 2**20
LARGE_BYTES = MIB
"""In all: less is copied in microseconds."""
LARGE_CONSTANT_BYTES = 10 * MIB
"""Smaller ones compile quickly and cost no step time."""
LEAST_SHARE = 0.01
"""Of the step: below, it is copied while the device computes, or at once."""
HANDLED = 0.3
"""Of the step: a few large arrays of the state come from the host only where it is seen at work."""
HANDLING, SHARED = 0.9, 0.75
"""Of the main thread's other work, and of the time in which copying and computing share a CPU, what
is won. Chosen with three scripts of tests/clinic in view (0, -23 and -28 % off), not measured."""
MANY = 9
"""Dispatches a step from which on the program that is read is not the step: see missing-jit."""
SHOWN = 3
BITS = re.compile(r"\d+")


def check(observation: Observation) -> Outcome:
    """Compares what is uploaded with the arguments that are new in each step."""
    steps, program = needed(observation.steps), observation.program
    evidence = facts(steps)
    if steps.dispatches >= MANY:
        return not_applicable("the step is no single program, so what it is given is not known")
    if program is None:
        if steps.uploads < 1:
            return ok("no host arrays are handed over", *evidence)
        return not_measured("the step's program, which names its arguments, could not be read")
    batch, others, state = sorted_out(program, steps)
    suspects = travelling(steps, batch, others, state)
    fetched = any(each in state for each in suspects)
    share = bytes_of(suspects) / max(1, bytes_of(suspects + batch))
    on_cpu = observation.backend is not None and observation.backend.platform == "cpu"
    gain = at_rest(steps, share, fetched=fetched, on_cpu=on_cpu)
    large = fetched or bytes_of(suspects) >= LARGE_BYTES
    if large and 1 - 1 / gain.high >= LEAST_SHARE:
        text = summary(suspects, fetched)
        return issue(text, [*evidence, *sizes(suspects)], [fix(observation, fetched)], gain)
    if program.constant_bytes > LARGE_CONSTANT_BYTES:
        text = (
            f"{program.constant_bytes / MIB:.0f} MiB of constants are part of the program: they "
            "cost compile time and memory"
        )
        constant = Evidence(
            name="constants",
            value=round(program.constant_bytes / MIB, 1),
            unit="MiB",
            source="StableHLO",
        )
        return hint(text, [*evidence, constant], [AS_ARGUMENT])
    return ok(f"{steps.uploads:.2g} host arrays a step, {steps.upload_ms:.2f} ms", *evidence)


def sorted_out(
    program: Program, steps: Steps
) -> tuple[list[Argument], list[Argument], list[Argument]]:
    """The arguments: the batch, what else is no state, and the state; large ones first."""
    data = list(program.data)
    size = steps.batch_size or majority([each.shape[0] for each in data if each.shape])
    batch = data if size is None else list(program.of_batch(size))
    others = [each for each in data if each not in batch]
    state = list(program.arguments)
    for each in data:
        state.remove(each)
    return batch, largest_first(others), largest_first(state)


def majority(sizes: list[int]) -> int | None:
    """The size that most have."""
    size, count = Counter(sizes).most_common(1)[0] if sizes else (0, 0)
    return size if count > len(sizes) / 2 else None


def largest_first(arguments: list[Argument]) -> list[Argument]:
    """By their bytes."""
    return sorted(arguments, key=lambda each: -bytes_of([each]))


def travelling(
    steps: Steps, batch: list[Argument], others: list[Argument], state: list[Argument]
) -> list[Argument]:
    """What may come from the host: the count is known, which they are only by exclusion."""
    extra = round(steps.uploads) - len(batch)
    if extra <= 0:
        return []
    if extra <= len(others):
        return others[:extra]
    from_state = state[: extra - len(others)]
    handled = steps.exposed_other_ms >= HANDLED * steps.time_ms
    if len(from_state) > len(state) / 2:
        return others + from_state
    if handled and bytes_of(from_state) > bytes_of(state) / 2:  # a table, say
        return others + from_state
    return others


def bytes_of(arguments: list[Argument]) -> int:
    """All together."""
    return sum(prod(each.shape) * bits(each.dtype) // 8 for each in arguments)


def bits(dtype: str) -> int:
    """The bits of an element: of f32, 32."""
    found = BITS.search(dtype)
    return max(8, int(found[0])) if found else 32


def at_rest(steps: Steps, share: float, *, fetched: bool, on_cpu: bool) -> Gain:
    """Without the copying, and the waiting for what is fetched, while the device idles.

    `share`: of the bytes that are copied, those that need not be.

    Where the state is fetched, nearly all that the main thread does besides is handling its arrays;
    and at most, the host's own work overlaps with the device's again. On the CPU, a device that
    computes while something is copied shares cores and memory with it.
    """
    whole_ms = max(steps.time_ms, 1e-9)
    copying_ms = max(0.0, steps.upload_ms) * share
    waiting_ms = max(0.0, steps.exposed_wait_ms) if fetched else 0.0
    idle_ms = max(0.0, whole_ms - steps.device_busy_ms)
    handling_ms = max(0.0, steps.exposed_other_ms) if fetched else 0.0
    most_ms = min(idle_ms, copying_ms + waiting_ms + handling_ms)
    lost_ms = min(idle_ms, copying_ms + waiting_ms + HANDLING * handling_ms)
    seen = on_cpu and lost_ms >= LEAST_SHARE * whole_ms
    shared_ms = max(0.0, min(copying_ms, whole_ms) - idle_ms) if seen else 0.0
    hidden_ms = min(idle_ms, steps.wait_ms) if fetched else 0.0

    def without(saved_ms: float) -> float:
        return 1 / (1 - min(0.98, saved_ms / whole_ms))

    return estimated(
        without(lost_ms + SHARED * shared_ms),
        without(0.5 * lost_ms),
        without(max(most_ms + shared_ms, hidden_ms)),
    )


def summary(suspects: list[Argument], fetched: bool) -> str:
    """What travels, and how large it is."""
    names = ", ".join(each.name for each in suspects[:SHOWN])
    names += ", …" if len(suspects) > SHOWN else ""
    size = f"{bytes_of(suspects) / MIB:.1f} MiB"
    if fetched:
        return (
            f"the state comes from the host in each step: {size} in {len(suspects)} arrays "
            f"({names}); to fetch it, the host waits for the step"
        )
    return f"{size} that are no new data come from the host in each step, likely {names}"


def facts(steps: Steps) -> list[Evidence]:
    """What is handed over, and what that takes."""
    wait_ms = steps.exposed_wait_ms
    return [
        Evidence(name="host arrays", value=round(steps.uploads, 1), unit="a step", source="trace"),
        Evidence(name="copying", value=steps.upload_ms, unit="ms/step", source="trace"),
        Evidence(name="waiting, device idle", value=wait_ms, unit="ms/step", source="trace"),
    ]


def sizes(suspects: list[Argument]) -> list[Evidence]:
    """The largest of them."""
    return [
        Evidence(
            name=each.name,
            value=round(bytes_of([each]) / MIB, 2),
            unit="MiB",
            source=f"argument {each.dtype}{list(each.shape)} of the program",
        )
        for each in suspects[:SHOWN]
    ]


AS_ARGUMENT = Fix(
    summary="pass large arrays as arguments, not from the enclosing scope",
    how="step = jax.jit(lambda state, batch, table: …)  # table = jax.device_put(table), once",
)


def fix(observation: Observation, state: bool) -> Fix:
    """The state stays where it is; what does not change is put there once."""
    workload = observation.target.workload
    if workload is not None and workload.training.state_on_host:
        return Fix(
            summary="keep the state on the device",
            how="[training] state_on_host = false",
            change=Change(workload={"training.state_on_host": False}),
        )
    if state:
        return Fix(
            summary="keep the state on the device, and fetch it only to save it",
            how="state, loss = step(state, batch)  # no jax.device_get, np.asarray in the loop",
        )
    return Fix(
        summary="put what does not change on the device once, before the loop",
        how="table = jax.device_put(table)",
    )
