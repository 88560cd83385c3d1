"""A character-level transformer language model in Equinox.

The text is written by a Markov chain, so that it needs no download; crops get a few typos, from
which the model learns to be robust.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import numpy as np
import optax

ALPHABET = "abcdefghijklmnopqrstuvwxyz .,;:-'\n"
CODES = {letter: code for code, letter in enumerate(ALPHABET)}
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
NEIGHBOURS = {b: a + c for row in ROWS for a, b, c in zip(row, row[1:], row[2:], strict=False)}
TYPO = 0.02
LENGTH = 32
WIDTH, HEADS, DEPTH, INNER = 48, 2, 1, 192


def write_text(rng: np.random.Generator, size: int) -> str:
    """Letters of which each depends on the two before it."""
    chances = rng.dirichlet(np.full(len(ALPHABET), 0.08), size=(len(ALPHABET), len(ALPHABET)))
    cumulative = chances.cumsum(axis=-1)
    before, last, letters = 0, 1, []
    for draw in rng.random(size):
        code = min(int(cumulative[before, last].searchsorted(draw)), len(ALPHABET) - 1)
        letters.append(ALPHABET[code])
        before, last = last, code
    return "".join(letters)


def misspelt(words: str, rng: np.random.Generator) -> str:
    """Some letters left out, typed twice, or beside the right key."""
    typed = []
    for letter in words:
        slip = rng.random()
        if slip < TYPO:
            continue
        if slip < 2 * TYPO:
            typed.append(letter)
        elif slip < 3 * TYPO and letter in NEIGHBOURS:
            letter = rng.choice(list(NEIGHBOURS[letter]))
        typed.append(letter)
    return "".join(typed)


def crops(text: str, batch_size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Batches of random crops, for ever; one letter more than the model sees."""
    while True:
        rows = []
        for start in rng.integers(0, len(text) - 2 * LENGTH, batch_size):
            typed = misspelt(text[start : start + 2 * LENGTH], rng)
            rows.append([CODES[letter] for letter in typed[: LENGTH + 1]])
        yield np.array(rows, dtype=np.int32)


def sinusoids(length: int, width: int) -> np.ndarray:
    """The positional table of "Attention is all you need"."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


Step = Callable[..., tuple]


class Block(eqx.Module):
    attention_norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    mlp_norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.attention_norm = eqx.nn.LayerNorm(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=keys[0])
        self.mlp_norm = eqx.nn.LayerNorm(WIDTH)
        self.up = eqx.nn.Linear(WIDTH, INNER, key=keys[1])
        self.down = eqx.nn.Linear(INNER, WIDTH, key=keys[2])

    def __call__(self, x: jax.Array, mask: np.ndarray) -> jax.Array:
        y = jax.vmap(self.attention_norm)(x)
        x = x + self.attention(y, y, y, mask=mask)
        y = jax.vmap(self.up)(jax.vmap(self.mlp_norm)(x))
        return x + jax.vmap(self.down)(jax.nn.relu(y))


class LanguageModel(eqx.Module):
    embedding: eqx.nn.Embedding
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        first, last, *keys = jax.random.split(key, DEPTH + 2)
        self.embedding = eqx.nn.Embedding(len(ALPHABET), WIDTH, key=first)
        self.blocks = [Block(each) for each in keys]
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.head = eqx.nn.Linear(WIDTH, len(ALPHABET), key=last)

    def __call__(self, codes: jax.Array) -> jax.Array:
        x = jax.vmap(self.embedding)(codes) + sinusoids(len(codes), WIDTH)
        causal = np.tril(np.ones((len(codes), len(codes)), dtype=bool))
        for block in self.blocks:
            x = block(x, causal)
        return jax.vmap(self.head)(jax.vmap(self.norm)(x))


def make_step(optimizer: optax.GradientTransformation, static: LanguageModel) -> Step:
    """The compiled update of the model's arrays; `static` is the rest of the model."""

    def step(
        params: LanguageModel, opt_state: optax.OptState, batch: jax.Array
    ) -> tuple[LanguageModel, optax.OptState, jax.Array]:
        def loss_of(params: LanguageModel) -> jax.Array:
            logits = jax.vmap(eqx.combine(params, static))(batch[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return jax.jit(step, donate_argnums=(0, 1))


def show(step: int, steps: int, loss: float) -> None:
    """A bar that fills up, with the loss beside it."""
    bar = ("#" * (20 * step // steps)).ljust(20, ".")
    print(f"\r{bar} {step}/{steps} loss {loss:.3f}", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--crops-per-epoch", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    loader = crops(write_text(rng, 200_000), args.batch_size, rng)
    model = LanguageModel(jax.random.key(args.seed))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(args.lr))
    params, static = eqx.partition(model, eqx.is_array)
    opt_state = optimizer.init(params)
    train_step = make_step(optimizer, static)

    steps = args.crops_per_epoch // args.batch_size
    for epoch in range(args.epochs):
        start = time.perf_counter()
        for step, batch in zip(range(steps), loader, strict=False):
            params, opt_state, loss = train_step(params, opt_state, batch)
            if step % 50 == 0:
                show(step, steps, loss.item())
        final = loss.item()
        speed = steps * args.batch_size / (time.perf_counter() - start)
        print(f"\repoch {epoch}: loss {final:.4f}, {speed:.0f} examples/s", flush=True)
    print(f"done, loss {final!r}")
    eqx.tree_serialise_leaves("model.eqx", eqx.combine(params, static))


if __name__ == "__main__":
    main()
