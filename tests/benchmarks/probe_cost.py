"""What the wrapper around jitted functions costs a call: at rest, while it is timed, while probed;
and what the look for single operations costs, which samples the main thread's stack meanwhile.

python -m tests.benchmarks.probe_cost [ROUNDS]

One process makes the same jitted step in slices: as jax made it; wrapped while nobody listens,
while a `Timer` or a `Prober` makes the calls, and while an `EagerWatch` looks. In each round every
variant has one slice, in random order; what a variant costs is told by the rounds' differences to
the plain slice. A slice ends when all is computed. The median of the differences is shown, with its
interval of 95%.
"""

import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perfdoctor.injection.calls import Hear, Hearing, wrapped
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.eager import GAP_S, EagerWatch
from perfdoctor.observe.agent.timing import Timer
from tests.saved import save

TARGETS_US = (50, 500, 5000)
ARRAYS, SIZE = 10, 64
"""Of the parameters; each has a velocity beside it."""
CALLS = 60
"""Of a slice: less than a prober looks at."""
PLAIN, AT_REST, TIMED, PROBING, LOOKED = "plain", "at rest", "timed", "probed", "looked at"
State = dict[str, Any]


def main() -> None:
    """All lengths of a step."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    lines = [f"{'step':>10}  {'plain':>12}" + "".join(f"{each:>28}" for each in COSTS)]
    data = {}
    for target_us in TARGETS_US:
        slices = measured(target_us, rounds)
        plain_us = median(slices[PLAIN])
        row = f"{target_us:>7} us  {plain_us:>9.1f} us"
        for name in COSTS:
            low, middle, high = interval(
                [a - b for a, b in zip(slices[name], slices[PLAIN], strict=True)]
            )
            row += f"{middle:>10.2f} ({low:+.1f} to {high:+.1f}) us".rjust(28)
        lines.append(row)
        data[str(target_us)] = slices
    leaves = len(jax.tree.leaves(first_state()))
    lines += [
        "",
        f"a call; the state has {leaves} leaves; {rounds} rounds of {CALLS} calls a slice",
    ]
    save("probe_cost", lines, data)


COSTS = (AT_REST, TIMED, PROBING, LOOKED)


def first_state() -> State:
    """Parameters and their velocities."""
    names = [f"layer_{n}" for n in range(ARRAYS)]
    return {kind: {name: jnp.ones(SIZE) for name in names} for kind in ("params", "velocity")}


def step(state: State, x: Any, work: Any) -> State:
    """Descends with momentum; as long as `work` says."""
    extra = jax.lax.fori_loop(0, work, lambda _, c: jnp.sin(c), x)

    def loss(params: State) -> Any:
        return sum(((p * x + 1e-9 * extra) ** 2).mean() for p in params.values())

    grads = jax.grad(loss)(state["params"])
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, state["velocity"], grads)
    params = jax.tree.map(lambda p, v: p - 1e-3 * v, state["params"], velocity)
    return {"params": params, "velocity": velocity}


def measured(target_us: float, rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, slice by slice."""
    jitted = jax.jit(step)
    work = work_for(jitted, target_us)
    hearing = Hearing()
    ours = wrapped(jitted, hearing)
    timer = Timer(jax, 1e9)
    hears: dict[str, Callable[[], Hear | None]] = {
        PLAIN: lambda: None,
        AT_REST: lambda: None,
        TIMED: lambda: timer,
        PROBING: lambda: Prober(jax),
        LOOKED: lambda: None,
    }
    found: dict[str, list[float]] = {name: [] for name in hears}
    for _ in range(rounds):
        for name in random.sample(list(hears), len(hears)):
            hearing.hear = hears[name]()
            with looked_at() if name == LOOKED else nullcontext():
                found[name].append(slice_us(jitted if name == PLAIN else ours, work, CALLS))
            hearing.hear = None
    return found


@contextmanager
def looked_at() -> Iterator[None]:
    """While another thread looks at the stack of this one, as often as the observer does."""
    over = threading.Event()
    watch = EagerWatch(over.wait, jax)

    def look() -> None:
        while not over.wait(GAP_S):
            watch.sample()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def slice_us(function: Any, work: Any, calls: int) -> float:
    """Microseconds a call."""
    state, x = first_state(), np.ones(SIZE, np.float32)
    state = jax.block_until_ready(function(state, x, work))
    begin_ns = time.perf_counter_ns()
    for _ in range(calls):
        state = function(state, x, work)
    jax.block_until_ready(state)
    return (time.perf_counter_ns() - begin_ns) / calls / 1e3


def work_for(jitted: Any, target_us: float) -> Any:
    """So that a step takes about so long; none where it does without."""

    def took_us(work: int) -> float:
        return min(slice_us(jitted, np.int32(work), 20) for _ in range(5))

    least_us, work = took_us(0), 50
    for _ in range(6):
        extra_us = max(took_us(work) - least_us, 1.0)
        work = round(work * min(10.0, max(0.0, target_us - least_us) / extra_us))
        if not work:
            break
    return np.int32(work)


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median, between the bounds of its interval of 95%, by ranks."""
    ordered, count = sorted(values), len(values)
    reach = math.ceil(0.98 * math.sqrt(count))
    low, high = max(0, count // 2 - reach), min(count - 1, count // 2 + reach)
    return ordered[low], median(ordered), ordered[high]


if __name__ == "__main__":
    main()
