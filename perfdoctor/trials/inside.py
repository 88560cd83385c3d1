"""Sits in a copy of the user's script during a trial: counts its steps and applies a Change to it.

A step is a call of the jitted function that the observation found to make the steps. It is counted
by a wrapper around what `jax.jit` returns; no profiler runs.
"""

import functools
import gc
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfdoctor.injection.bootstrap import Orders
from perfdoctor.kernel import offer_to_the_oom_killer
from perfdoctor.trials.tally import CALLS, COMPILES, FIRST, KEPT, SIZE_BYTES

SET_UP_CALLS = 3
"""So many steps in, all that a set-up makes is alive: then it can be frozen."""
COMPILED = "/jax/core/compile/backend_compile_duration"
ATTRIBUTES = ("lower", "trace", "eval_shape", "clear_cache", "_cache_size")


def attach(jax: Any, orders: Orders) -> None:
    """Called once the script has imported jax; see `perfdoctor.injection`."""
    offer_to_the_oom_killer()
    if orders["cores"]:
        os.sched_setaffinity(0, orders["cores"])
    impose(jax, orders["settings"])
    with (Path(orders["folder"]) / "tally").open("r+b") as file:
        tally = memoryview(mmap.mmap(file.fileno(), SIZE_BYTES)).cast("q")
    count = counter(tally, freeze=orders["freeze"])
    for name in ("jit", "pmap"):
        setattr(jax, name, counted_by(count, getattr(jax, name), orders["function"]))

    def listen(name: str, seconds: float, **details: Any) -> None:
        tally[COMPILES] += name == COMPILED

    jax.monitoring.register_event_duration_secs_listener(listen)


def impose(jax: Any, settings: dict[str, Any]) -> None:
    """Make JAX settings, and let the script's own code not unmake them."""
    update = jax.config.update

    def update_others(name: str, value: Any) -> None:
        if name not in settings:
            update(name, value)

    for name, value in settings.items():
        update(name, value)
    if settings:
        jax.config.update = update_others


def counter(tally: memoryview, *, freeze: bool) -> Callable[[], None]:
    """Writes down the instant of each call."""

    def count() -> None:
        calls = tally[CALLS]
        tally[FIRST + calls % KEPT] = time.monotonic_ns()
        tally[CALLS] = calls + 1
        if freeze and calls == SET_UP_CALLS:
            gc.collect()
            gc.freeze()

    return count


def counted_by(count: Callable[[], None], jit: Any, function: str) -> Any:
    """`jax.jit`, whose products of this name count their calls."""

    def counted(jitted: Any) -> Any:
        if not hasattr(jitted, "lower"):  # jit(static_argnums=…) makes a decorator
            return lambda fun: counted(jitted(fun))
        if getattr(jitted, "__name__", None) != function:
            return jitted

        @functools.wraps(jitted)
        def call(*arguments: Any, **named: Any) -> Any:
            count()
            return jitted(*arguments, **named)

        for name in ATTRIBUTES:
            if hasattr(jitted, name):
                setattr(call, name, getattr(jitted, name))
        return call

    @functools.wraps(jit)
    def counting_jit(*arguments: Any, **named: Any) -> Any:
        return counted(jit(*arguments, **named))

    return counting_jit
