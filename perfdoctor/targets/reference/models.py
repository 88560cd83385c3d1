"""The four models of the reference loop, of equinox's layers. Each maps one example to logits."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.generate import CLASSES, VOCABULARY

HEADS = 4
"""Attention heads of the transformer."""
Pixels = UInt8[Array, "height width 3"]
Logits = Float[Array, " classes"]
Tokens = Int[Array, " time"]
TokenLogits = Float[Array, "time vocabulary"]


def normalised(image: Pixels, like: Array) -> Float[Array, "3 height width"]:
    """Pixels as channels first, around 0, in the arithmetic of the parameters."""
    return jnp.moveaxis(image, -1, 0).astype(like.dtype) / 64 - 2


def gelu(x: Array) -> Array:
    """As it is defined: x times the normal distribution's probability of less than x."""
    return x * jax.scipy.stats.norm.cdf(x)


ACTIVATIONS = {"relu": jax.nn.relu, "gelu": gelu}
"""The activations, by the workload's `activation`."""


class Perceptron(eqx.Module):
    """Dense layers with dropout."""

    layers: list[eqx.nn.Linear]
    dropout: eqx.nn.Dropout
    activation: str = eqx.field(static=True)

    def __init__(self, workload: Workload, key: PRNGKeyArray) -> None:
        model = workload.model
        sizes = [3 * workload.data.image_size**2, *[model.width] * model.depth, CLASSES]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = [
            eqx.nn.Linear(fan_in, fan_out, key=k)
            for fan_in, fan_out, k in zip(sizes, sizes[1:], keys, strict=False)
        ]
        self.dropout = eqx.nn.Dropout(model.dropout)
        self.activation = model.activation

    def __call__(self, image: Pixels, key: PRNGKeyArray) -> Logits:
        hidden = normalised(image, self.layers[0].weight).ravel()
        activate = ACTIVATIONS[self.activation]
        for layer, k in zip(
            self.layers[:-1], jax.random.split(key, len(self.layers)), strict=False
        ):
            hidden = self.dropout(activate(layer(hidden)), key=k)
        return self.layers[-1](hidden)


class ConvNet(eqx.Module):
    """Stages of a strided convolution each, the channels doubled from stage to stage."""

    stages: list[eqx.nn.Conv2d]
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear
    activation: str = eqx.field(static=True)

    def __init__(self, workload: Workload, key: PRNGKeyArray) -> None:
        model = workload.model
        self.activation = model.activation
        channels = [3, *(model.width * 2**stage for stage in range(model.depth))]
        *keys, head_key = jax.random.split(key, model.depth + 1)
        self.stages = [
            eqx.nn.Conv2d(fan_in, fan_out, model.kernel, stride=2, padding=model.kernel // 2, key=k)
            for fan_in, fan_out, k in zip(channels, channels[1:], keys, strict=False)
        ]
        self.dropout = eqx.nn.Dropout(model.dropout)
        self.head = eqx.nn.Linear(channels[-1], CLASSES, key=head_key)

    def __call__(self, image: Pixels, key: PRNGKeyArray) -> Logits:
        hidden = normalised(image, self.head.weight)
        for stage in self.stages:
            hidden = ACTIVATIONS[self.activation](stage(hidden))
        return self.head(self.dropout(hidden.mean((1, 2)), key=key))


class Recurrent(eqx.Module):
    """Embedding, layers of LSTM cells scanned over time, logits of the next token."""

    embedding: eqx.nn.Embedding
    cells: list[eqx.nn.LSTMCell]
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear
    scan: bool = eqx.field(static=True)

    def __init__(self, workload: Workload, key: PRNGKeyArray) -> None:
        model = workload.model
        self.scan = model.scan
        embedding_key, head_key, *keys = jax.random.split(key, model.depth + 2)
        self.embedding = eqx.nn.Embedding(VOCABULARY, model.width, key=embedding_key)
        self.cells = [eqx.nn.LSTMCell(model.width, model.width, key=k) for k in keys]
        self.dropout = eqx.nn.Dropout(model.dropout)
        self.head = eqx.nn.Linear(model.width, VOCABULARY, key=head_key)

    def __call__(self, tokens: Tokens, key: PRNGKeyArray) -> TokenLogits:
        hidden = jax.vmap(self.embedding)(tokens)
        for cell, k in zip(self.cells, jax.random.split(key, len(self.cells)), strict=True):
            hidden = self.dropout(over_time(cell, hidden, self.scan), key=k)
        return jax.vmap(self.head)(hidden)


def over_time(
    cell: eqx.nn.LSTMCell, inputs: Float[Array, "time width"], scan: bool
) -> Float[Array, "time width"]:
    """The hidden states of one LSTM layer over the whole sequence."""

    def advance(carry: tuple[Array, Array], current: Array) -> tuple[tuple[Array, Array], Array]:
        following = cell(current, carry)
        return following, following[0]

    zeros = jnp.zeros(cell.hidden_size, inputs.dtype)
    if scan:
        return jax.lax.scan(advance, (zeros, zeros), inputs)[1]
    carry, states = (zeros, zeros), []
    for current in inputs:
        carry, state = advance(carry, current)
        states.append(state)
    return jnp.stack(states)


class Block(eqx.Module):
    """Causal self-attention and a feed-forward part, each behind a layer norm."""

    attention: eqx.nn.MultiheadAttention
    widen: eqx.nn.Linear
    narrow: eqx.nn.Linear
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    dropout: eqx.nn.Dropout

    def __init__(self, width: int, dropout: float, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 3)
        heads = HEADS if width % HEADS == 0 else 1
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=keys[0])
        self.widen = eqx.nn.Linear(width, 4 * width, key=keys[1])
        self.narrow = eqx.nn.Linear(4 * width, width, key=keys[2])
        self.norms = (eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width))
        self.dropout = eqx.nn.Dropout(dropout)

    def __call__(self, hidden: Float[Array, "time width"], key: PRNGKeyArray) -> Array:
        causal = jnp.tril(jnp.ones((len(hidden), len(hidden)), bool))
        calm = jax.vmap(self.norms[0])(hidden)
        hidden = hidden + self.attention(calm, calm, calm, mask=causal)
        calm = jax.vmap(self.norms[1])(hidden)
        wide = jax.nn.gelu(jax.vmap(self.widen)(calm))
        return hidden + self.dropout(jax.vmap(self.narrow)(wide), key=key)


class Transformer(eqx.Module):
    """Embeddings of token and position, blocks, logits of the next token."""

    embedding: eqx.nn.Embedding
    positions: Float[Array, "time width"]
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, workload: Workload, key: PRNGKeyArray) -> None:
        model = workload.model
        embedding_key, position_key, head_key, *keys = jax.random.split(key, model.depth + 3)
        self.embedding = eqx.nn.Embedding(VOCABULARY, model.width, key=embedding_key)
        shape = (workload.data.sequence_length, model.width)
        self.positions = 0.02 * jax.random.normal(position_key, shape)
        self.blocks = [Block(model.width, model.dropout, k) for k in keys]
        self.head = eqx.nn.Linear(model.width, VOCABULARY, key=head_key)

    def __call__(self, tokens: Tokens, key: PRNGKeyArray) -> TokenLogits:
        hidden = jax.vmap(self.embedding)(tokens) + self.positions
        for block, k in zip(self.blocks, jax.random.split(key, len(self.blocks)), strict=True):
            hidden = block(hidden, k)
        return jax.vmap(self.head)(hidden)


MODELS: dict[str, type[eqx.Module]] = {
    "mlp": Perceptron,
    "cnn": ConvNet,
    "lstm": Recurrent,
    "transformer": Transformer,
}
"""The models, by the workload's `name`."""
