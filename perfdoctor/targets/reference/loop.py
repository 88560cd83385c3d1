"""The reference training loop: a plain JAX program, as people write it.

Nothing in here observes or measures; perfdoctor watches it from outside, as it watches any script.
"""

import gc
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.data import batches
from perfdoctor.targets.reference.models import MODELS

log = logging.getLogger(__name__)

ARITHMETIC = {
    "float32": jnp.float32,
    "bfloat16": jnp.bfloat16,
    "mixed": jnp.bfloat16,
    "float64": jnp.float64,
}
"""Types of the parameters and of the arithmetic, by the workload's `dtype`."""
DECAY = 0.999
"""Factor of the learning rate, each time that it decays."""


class State(NamedTuple):
    """What a step takes and replaces."""

    params: Any
    opt_state: Any
    key: PRNGKeyArray


class Metrics(NamedTuple):
    """Loss and accuracy of one batch, before its update."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]


class TrainingLoop:
    """One training run of a workload: Adam on the cross entropy."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        if workload.training.dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        self.workload = workload
        self.examples_per_step = workload.training.batch_size
        self.step_count = 0
        self.metrics: Metrics | None = None
        self.kept: list[Any] = []
        self.ballast = [[index] for index in range(workload.process.live_objects)]
        self.batches = batches(workload, folder)
        self.state, self.train_step = set_up(workload)
        if workload.process.gc_freeze:
            gc.collect()
            gc.freeze()

    def run(self, steps: int) -> None:
        """Dispatch so many steps; the last of them may still be computing on return."""
        self.run_each(range(steps))

    def run_each(self, steps: Iterable[int]) -> None:
        """Dispatch a step for each number; the last of them may still be computing on return."""
        training, process = self.workload.training, self.workload.process
        for _ in steps:
            inputs, labels = next(self.batches)
            self.state, self.metrics = self.train_step(self.state, inputs, labels, *self.decay())
            self.step_count += 1
            if training.state_on_host:
                params, opt_state = jax.device_get((self.state.params, self.state.opt_state))
                self.state = State(params, opt_state, self.state.key)
            if self.is_due(training.keep_every):
                self.kept.append(jax.tree.map(jnp.copy, self.state.params))
            if self.is_due(process.gc_collect_every):
                gc.collect()
            if self.is_due(training.log_every):
                self.report()

    def is_due(self, every: int) -> bool:
        """Whether it is time for what is done after so many steps; 0: never."""
        return every > 0 and self.step_count % every == 0

    def decay(self) -> tuple[float, ...]:
        """The argument that scales the learning rate, if it decays."""
        training = self.workload.training
        if training.schedule == "constant":
            return ()
        return (DECAY ** (self.step_count // training.schedule_every),)

    def report(self) -> None:
        """Log the loss and the accuracy of the newest step, which waits for it."""
        if self.metrics is not None:
            loss, accuracy = float(self.metrics.loss), float(self.metrics.accuracy)
            log.info("step %d: loss %.4f, accuracy %.3f", self.step_count, loss, accuracy)

    def close(self) -> None:
        """End the worker processes that prepare batches, if there are any."""
        if hasattr(self.batches, "close"):
            self.batches.close()

    def wait(self) -> None:
        """Wait until the device has computed all that was dispatched."""
        jax.block_until_ready(self.state)


def set_up(workload: Workload) -> tuple[State, Any]:
    """The initial state, and the function (state, inputs, labels[, decay]) -> (state, metrics)."""
    training = workload.training
    model_key, dropout_key = jax.random.split(jax.random.key(training.seed))
    model = MODELS[workload.model.name](workload, model_key)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    stored = jnp.float32 if training.dtype == "mixed" else ARITHMETIC[training.dtype]
    params = cast(params, stored)
    optimiser = optax.adam(training.learning_rate)
    arithmetic = ARITHMETIC[training.dtype]

    def step(
        state: State, inputs: Array, labels: Array, decay: float = 1.0
    ) -> tuple[State, Metrics]:
        state, loss, logits = train_step(
            static, optimiser, arithmetic, state, inputs, labels, decay
        )
        if training.callback == "print":
            jax.debug.print("loss {}", loss)
        return state, Metrics(loss, accuracy(logits, labels, training.callback == "metric"))

    if training.jit:
        step = jax.jit(
            step,
            donate_argnums=(0,) if training.donate else (),
            static_argnums=(3,) if training.schedule == "static" else (),
            **shared_among(training.devices),
        )
    return State(params, optimiser.init(params), dropout_key), step


def shared_among(devices: int) -> dict[str, Any]:
    """Options of `jax.jit` that split each batch among so many devices; all have the state."""
    if devices == 1:
        return {}
    mesh = jax.make_mesh((devices,), ("batch",), devices=jax.devices()[:devices])
    whole = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("batch"))
    return {"in_shardings": (whole, split, split), "out_shardings": whole}


def train_step(
    static: Any,
    optimiser: optax.GradientTransformation,
    dtype: Any,
    state: State,
    inputs: Array,
    labels: Int[Array, "batch ..."],
    decay: float,
) -> tuple[State, Float[Array, ""], Float[Array, "batch ..."]]:
    """One update by the gradient of the mean cross entropy over the batch; its loss and logits."""
    key, dropout_key = jax.random.split(state.key)
    differentiate = jax.value_and_grad(cross_entropy, has_aux=True)
    (loss, logits), grads = differentiate(state.params, static, dtype, inputs, labels, dropout_key)
    updates, opt_state = optimiser.update(grads, state.opt_state)
    updates = jax.tree.map(lambda update: decay * update, updates)
    params = optax.apply_updates(state.params, updates)
    return State(params, opt_state, key), loss, logits


def cross_entropy(
    params: Any, static: Any, dtype: Any, inputs: Array, labels: Array, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, "batch ..."]]:
    """Mean cross entropy over the batch, and the logits."""
    model = eqx.combine(cast(params, dtype), static)
    logits = jax.vmap(model)(inputs, jax.random.split(key, len(inputs)))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses.mean(), logits


def accuracy(logits: Array, labels: Array, by_numpy: bool) -> Float[Array, ""]:
    """The share of right predictions; computed by NumPy on the host if asked for."""
    if not by_numpy:
        return (logits.argmax(-1) == labels).mean()

    def on_host(logits: Any, labels: Any) -> Any:
        return np.float32((np.asarray(logits).argmax(-1) == np.asarray(labels)).mean())

    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.pure_callback(on_host, scalar, logits.astype(jnp.float32), labels)


def cast(tree: Any, dtype: Any) -> Any:
    """The same tree with its floating-point arrays in `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)
