"""Text classification with an LSTM over the word pieces of mails (flax.linen)."""

import argparse
import json
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

PAD, UNKNOWN, FIRST_PIECE = 0, 1, 2
ONSETS = ["b", "ch", "d", "f", "gr", "k", "l", "m", "n", "pr", "s", "t", "v", "z"]
SYLLABLES = [onset + vowel for onset in ONSETS for vowel in ("a", "e", "ié", "o", "u")]
TOPICS = 4


@dataclass
class Config:
    """What can be set on the command line."""

    epochs: int = 1000
    batch_size: int = 32
    max_length: int = 128
    embedding: int = 32
    hidden: int = 32
    learning_rate: float = 2e-3
    replace: float = 0.1
    swap: float = 0.15
    seed: int = 0


def make_corpus(file: Path, documents: int = 1920) -> None:
    """Write mails on several topics: a header, a quotation, and a short answer."""
    rng = np.random.default_rng(11)
    words = ["".join(rng.choice(SYLLABLES, rng.integers(2, 5))) for _ in range(1500)]
    mails = []
    for _ in range(documents):
        topic = int(rng.integers(TOPICS))
        length = int(np.clip(rng.lognormal(2.89, 0.6), 4, 60))
        common, own = rng.integers(0, 1100, length), rng.integers(0, 100, length)
        chosen = np.where(rng.random(length) < 0.7, common, 1100 + 100 * topic + own)
        answer = " ".join(words[i] + ("," if rng.random() < 0.1 else "") for i in chosen)
        header = f"From: {words[length]}@example.org\nSubject: Re: {words[common[0]]}\n\n"
        quoted = rng.choice(words[:1100], (25, 10))
        quotation = "".join(f"> {' '.join(line)}\n" for line in quoted)
        mails.append({"topic": topic, "text": f"{header}{quotation}{answer.capitalize()}.\n"})
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(mails))


class Tokenizer:
    """Greedy word pieces of a mail's own lines, after case and accents are stripped."""

    def __init__(self, pieces: list[str]) -> None:
        self.ids = {piece: FIRST_PIECE + i for i, piece in enumerate(sorted(set(pieces)))}
        self.longest = max(map(len, self.ids))
        self.size = FIRST_PIECE + len(self.ids)

    def normalize(self, text: str) -> str:
        kept = []
        for letter in unicodedata.normalize("NFD", text.lower()):
            kind = unicodedata.category(letter)
            if letter == "\n" or kind[0] in "LNSZ":
                kept.append(letter)
            elif kind[0] == "P":
                kept.append(f" {letter} ")
        return "".join(kept)

    def pieces(self, word: str) -> Iterator[int]:
        start = 0
        while start < len(word):
            for end in range(min(len(word), start + self.longest), start, -1):
                if word[start:end] in self.ids:
                    yield self.ids[word[start:end]]
                    start = end
                    break
            else:
                yield UNKNOWN
                start += 1

    def encode(self, text: str) -> list[int]:
        _, _, body = self.normalize(text).partition("\n\n")
        own = [line for line in body.splitlines() if not line.startswith(">")]
        return [piece for line in own for word in line.split() for piece in self.pieces(word)]


class TextClassifier(nn.Module):
    """Embedding, LSTM, the mean of its outputs, logits."""

    config: Config
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        present = (tokens != PAD)[..., None]
        x = nn.Embed(self.vocabulary, self.config.embedding)(tokens)
        x = nn.RNN(nn.OptimizedLSTMCell(self.config.hidden))(x)
        mean = jnp.sum(x * present, axis=1) / jnp.sum(present, axis=1)
        return nn.Dense(TOPICS)(mean)


def train_step(
    state: TrainState, tokens: jax.Array, labels: jax.Array
) -> tuple[TrainState, dict[str, jax.Array]]:
    """A step of AdamW, with its loss and accuracy."""

    def loss_fn(params: dict) -> tuple[jax.Array, jax.Array]:
        logits = state.apply_fn({"params": params}, tokens)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": accuracy}


class Corpus:
    """The documents as word pieces; in each epoch other ones are replaced."""

    def __init__(self, file: Path, config: Config) -> None:
        mails = json.loads(file.read_text())
        self.labels = np.array([mail["topic"] for mail in mails], np.int32)
        self.tokenizer = Tokenizer([unicodedata.normalize("NFD", s)[:3] for s in SYLLABLES])
        self.documents = [self.tokenizer.encode(mail["text"]) for mail in mails]
        self.config, self.rng = config, np.random.default_rng(config.seed)

    def augmented(self, document: list[int]) -> list[int]:
        """Some pieces replaced by random ones, and some pairs swapped."""
        pieces = document[: self.config.max_length]
        for i in range(len(pieces)):
            if self.rng.random() < self.config.replace:
                pieces[i] = int(self.rng.integers(FIRST_PIECE, self.tokenizer.size))
        for _ in range(round(len(pieces) * self.config.swap)):
            i, j = self.rng.choice(len(pieces), 2, replace=False)
            pieces[i], pieces[j] = pieces[j], pieces[i]
        return pieces

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        size = self.config.batch_size
        order = self.rng.permutation(len(self.documents))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            documents = [self.augmented(self.documents[i]) for i in chosen]
            length = self.config.max_length
            tokens = np.full((size, length), PAD, np.int32)
            for row, pieces in zip(tokens, documents, strict=True):
                row[: len(pieces)] = pieces
            yield tokens, self.labels[chosen]


def parse_args() -> Config:
    """A flag for each field."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in vars(Config()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return Config(**vars(parser.parse_args()))


def main() -> None:
    """Train, then save the parameters."""
    config, file = parse_args(), Path("data/mails.json")
    if not file.exists():
        make_corpus(file)
    corpus = Corpus(file, config)
    model = TextClassifier(config, corpus.tokenizer.size)
    example = jnp.ones((1, config.max_length), jnp.int32)
    params = model.init(jax.random.key(config.seed), example)["params"]
    state = TrainState.create(
        apply_fn=model.apply, params=params, tx=optax.adamw(config.learning_rate)
    )
    step = jax.jit(train_step, donate_argnums=0)
    for epoch in range(1, config.epochs + 1):
        history: list[dict] = []
        start = time.perf_counter()
        for tokens, labels in corpus.batches():
            state, metrics = step(state, tokens, labels)
            history.append(metrics)
        mean = jax.tree.map(lambda *values: np.mean(values), *jax.device_get(history))
        rate = len(history) * config.batch_size / (time.perf_counter() - start)
        print(
            f"epoch {epoch:3d}  loss {mean['loss']:.4f}  accuracy {mean['accuracy']:.3f}  "
            f"{rate:,.0f} examples/s",
            flush=True,
        )
    leaves = jax.tree_util.tree_leaves_with_path(state.params)
    np.savez("result.npz", **{jax.tree_util.keystr(path): leaf for path, leaf in leaves})


if __name__ == "__main__":
    main()
