"""The step of linen_text."""

from pathlib import Path

import jax
import jax.numpy as jnp

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does, with two batches of mails."""
    train = style("linen_text")
    config, file = train.Config(), Path("data/mails.json")
    train.make_corpus(file, documents=64)
    corpus = train.Corpus(file, config)
    model = train.TextClassifier(config, corpus.tokenizer.size)
    example = jnp.ones((1, config.max_length), jnp.int32)
    params = model.init(jax.random.key(config.seed), example)["params"]
    state = train.TrainState.create(
        apply_fn=model.apply, params=params, tx=train.optax.adamw(config.learning_rate)
    )
    step = jax.jit(train.train_step, donate_argnums=0)
    return fed_back(step, [state], *next(corpus.batches()))
