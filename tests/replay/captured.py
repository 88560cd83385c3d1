"""Steps of small programs, captured in this process as the agent does it in the program's."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perfdoctor.injection.calls import Function, Hearing, wrapped
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.roles import probe_of
from perfdoctor.schema.calls import Leaf
from perfdoctor.schema.capture import Capture

MOST_STEPS = 300
"""Reached only where something is wrong."""
COMPARED = 4
"""Steps after the captured one."""

Program = Callable[[Any], Iterator[None]]
"""Is given what takes the place of `jax.jit`, and makes a step each time."""
Results = list[Any]


@dataclass(frozen=True)
class Captured:
    """A step in a folder, and what the program's calls returned from that step on, in order."""

    folder: Path
    capture: Capture
    leaves: dict[str, Leaf]
    results: list[Results]
    failure: str | None = None


def captured(program: Program, folder: Path, settings: Mapping[str, Any] | None = None) -> Captured:
    """The step of a program that is steady from its first step on."""
    hearing, results = Hearing(), list[Results]()

    def jit(function: Any, **options: Any) -> Any:
        inner = wrapped(jax.jit(function, **options), hearing)

        def call(*args: Any, **kwargs: Any) -> Any:
            outputs = inner(*args, **kwargs)
            results.append([copied(each) for each in jax.tree.leaves(outputs)])
            return outputs

        return call

    steps = program(jit)
    next(steps)
    prober = Prober(jax)
    hearing.hear = prober
    until_done(steps, prober)
    probe = probe_of(prober)
    assert prober.failure is None and probe is not None
    capturer = Capturer(jax, probe, folder, settings or {}, dict(os.environ))
    ended_at = list[int]()

    def capture(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Notes which of the calls is the last one of the captured step."""
        before = capturer.done.is_set()
        outputs = capturer(function, args, kwargs)
        if capturer.done.is_set() and not before:
            ended_at.append(len(results))
        return outputs

    hearing.hear = capture
    until_done(steps, capturer)
    hearing.hear = None
    for _ in range(COMPARED):
        next(steps)
    capturer.finish()
    begin = ended_at[0] - len(probe.keys) + 1
    leaves = {leaf.argument: leaf for call in probe.calls for leaf in call.leaves}
    if capturer.capture is None or capturer.failure is not None:
        nothing = Capture(calls=(), settings={}, env={})
        return Captured(folder, nothing, leaves, [], capturer.failure)
    return Captured(folder, capturer.capture, leaves, results[begin:])


def until_done(steps: Iterator[None], listener: Prober | Capturer) -> None:
    """Make steps until it has heard enough."""
    for _ in range(MOST_STEPS):
        if listener.done.is_set():
            return
        next(steps)
    raise AssertionError(listener)


def copied(result: Any) -> Any:
    """Its values; those of a key too."""
    if jnp.issubdtype(result.dtype, jax.dtypes.prng_key):
        result = jax.random.key_data(result)
    return np.array(result.astype(jnp.float32) if result.dtype == jnp.bfloat16 else result)


def training(jit: Any) -> Iterator[None]:
    """Parameters that are donated, a key, a bfloat16 constant, a number, a batch on the host."""

    def step(params: Any, key: Any, scale: Any, rate: Any, batch: Any) -> Any:
        key, noise = jax.random.split(key)
        noisy = batch + 0.1 * jax.random.normal(noise, batch.shape)

        def loss(params: Any) -> Any:
            return ((jnp.tanh(noisy @ params["w"]) @ params["v"] * scale) ** 2).mean()

        grads = jax.grad(loss)(params)  # type: ignore[no-untyped-call, unused-ignore]
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), key, loss(params)

    step = jit(step, donate_argnums=0)
    params = {"w": jnp.full((8, 8), 0.1), "v": jnp.linspace(-1, 1, 8)}
    key, scale = jax.random.key(0), jnp.full((), 1.5, jnp.bfloat16)
    batch = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    while True:
        params, key, _ = step(params, key, scale, 0.1, batch)
        yield


def new_batches(jit: Any) -> Iterator[None]:
    """Another one in each step, of numbers within bounds."""
    step = jit(lambda params, batch: params + params[batch].mean())
    params, draw = jnp.arange(50.0), np.random.default_rng(0)
    while True:
        params = step(params, draw.integers(10, 20, 16))
        yield


def over_the_host(jit: Any) -> Iterator[None]:
    """The state leaves the device in each step."""
    step = jit(lambda state: state * 0.5 + 1.0)
    state: Any = np.ones(1000, np.float32)
    while True:
        state = np.asarray(step(state))
        yield


def two_functions(jit: Any) -> Iterator[None]:
    """One computes gradients, the other one applies them, in lower precision."""
    grads_of = jit(lambda params, x: jax.grad(lambda p: jnp.tanh(x @ p).mean())(params))
    apply = jit(lambda params, grads: params - grads.astype(jnp.bfloat16), donate_argnums=0)
    params, x = jnp.full((8, 8), 0.5, jnp.bfloat16), jnp.linspace(-1, 1, 32).reshape(4, 8)
    while True:
        time.sleep(0.002)  # here a step begins
        params = apply(params, grads_of(params, x))
        yield
