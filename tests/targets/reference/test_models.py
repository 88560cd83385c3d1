from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.schema.workload import Data, Model, Workload
from perfdoctor.targets.reference.generate import CLASSES, VOCABULARY
from perfdoctor.targets.reference.models import MODELS

IMAGE, SEQUENCE = 8, 6
Name = Literal["mlp", "cnn", "lstm", "transformer"]


def workload(name: Name, *, width: int = 4, depth: int = 2, dropout: float = 0.1) -> Workload:
    return Workload(
        model=Model(name=name, width=width, depth=depth, dropout=dropout),
        data=Data(image_size=IMAGE, sequence_length=SEQUENCE, source="records"),
    )


def forward(workload: Workload) -> Callable[[Any, int], Any]:
    """The function from an example and the seed of dropout to logits, compiled as a whole."""

    def logits(example: Any, dropout_seed: int) -> Any:
        model: Any = MODELS[workload.model.name](workload, jax.random.key(0))
        return model(example, jax.random.key(dropout_seed))

    return jax.jit(logits)  # type: ignore[no-any-return]


def pixels() -> Any:
    return jnp.arange(IMAGE * IMAGE * 3, dtype=jnp.uint8).reshape(IMAGE, IMAGE, 3)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_an_image_gives_one_logit_for_each_class(name: Name, depth: int) -> None:
    found = jax.eval_shape(forward(workload(name, depth=depth)), pixels(), 0)
    assert found.shape == (CLASSES,)
    assert found.dtype == jnp.float32


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_each_token_gives_one_logit_for_each_other(name: Name, width: int) -> None:
    found = jax.eval_shape(forward(workload(name, width=width)), jnp.arange(SEQUENCE), 0)
    assert found.shape == (SEQUENCE, VOCABULARY)
    assert found.dtype == jnp.float32


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_sequence_model_does_not_see_the_future(name: Name) -> None:
    logits = forward(workload(name, dropout=0.0))
    before, after = (logits(jnp.asarray([5, 6, 7, token, 8, 9]), 0) for token in (1, 200))
    np.testing.assert_allclose(before[:3], after[:3], rtol=1e-5)
    assert not np.allclose(before[3:], after[3:])


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "transformer"])
def test_dropout_depends_on_its_key(name: Name) -> None:
    example = pixels() if name in ("mlp", "cnn") else jnp.arange(SEQUENCE)
    logits = forward(workload(name, width=16, dropout=0.5))
    first, second = logits(example, 1), logits(example, 2)
    assert np.isfinite(first).all()
    assert not np.allclose(first, second)


def test_there_is_a_model_for_every_name() -> None:
    assert list(MODELS) == ["mlp", "cnn", "lstm", "transformer"]
