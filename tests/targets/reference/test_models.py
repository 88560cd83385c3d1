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


def logits(workload: Workload, example: Any, *, dropout_seed: int = 1) -> Any:
    model: Any = MODELS[workload.model.name](workload, jax.random.key(0))
    return model(example, jax.random.key(dropout_seed))


def pixels() -> Any:
    return jnp.arange(IMAGE * IMAGE * 3, dtype=jnp.uint8).reshape(IMAGE, IMAGE, 3)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_an_image_gives_one_logit_for_each_class(name: Name, depth: int) -> None:
    found = logits(workload(name, depth=depth), pixels())
    assert found.shape == (CLASSES,)
    assert found.dtype == jnp.float32
    assert np.isfinite(found).all()


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_each_token_gives_one_logit_for_each_other(name: Name, width: int) -> None:
    found = logits(workload(name, width=width), jnp.arange(SEQUENCE))
    assert found.shape == (SEQUENCE, VOCABULARY)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_sequence_model_does_not_see_the_future(name: Name) -> None:
    calm = workload(name, dropout=0.0)
    before = logits(calm, jnp.arange(SEQUENCE))
    after = logits(calm, jnp.arange(SEQUENCE).at[3].set(200))
    np.testing.assert_allclose(before[:3], after[:3], rtol=1e-5)
    assert not np.allclose(before[3:], after[3:])


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "transformer"])
def test_dropout_depends_on_its_key(name: Name) -> None:
    example = pixels() if name in ("mlp", "cnn") else jnp.arange(SEQUENCE)
    noisy = workload(name, width=16, dropout=0.5)
    first, second = (logits(noisy, example, dropout_seed=seed) for seed in (1, 2))
    assert not np.allclose(first, second)


def test_there_is_a_model_for_every_name() -> None:
    assert list(MODELS) == ["mlp", "cnn", "lstm", "transformer"]
