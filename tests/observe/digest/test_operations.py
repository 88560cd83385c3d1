"""Single operations of a program: their sizes, work and precision."""

import jax
import jax.numpy as jnp
import pytest

from tests.observe.digest.test_layers import dense, only, sizes, zeros


def test_a_product_tells_its_sizes_and_work() -> None:
    layer = only(dense, zeros(5, 7), zeros(8, 5))
    assert (layer.kind, sizes(layer)) == ("product", (8, 5, 7))
    assert layer.flops == 2 * 8 * 5 * 7
    assert (layer.written, layer.executed, layer.kernel) == (1, 1, ())
    assert (layer.dtype, layer.precision) == ("f32", "DEFAULT")


def test_weights_may_come_first() -> None:
    def step(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        return jax.vmap(lambda each: weights @ jnp.tanh(each))(inputs)

    assert sizes(only(step, zeros(7, 5), zeros(8, 5))) == (8, 5, 7)


def test_rows_are_all_results_that_share_the_weights() -> None:
    assert sizes(only(dense, zeros(5, 7), zeros(8, 3, 5))) == (24, 5, 7)


def test_products_side_by_side_share_no_weights() -> None:
    def scores(queries: jax.Array, keys: jax.Array) -> jax.Array:
        return jnp.einsum("hqd,hkd->hqk", jnp.sin(queries), jnp.cos(keys))

    layer = only(scores, zeros(2, 6, 4), zeros(2, 9, 4))
    assert sizes(layer) == (6, 4, 9)
    assert layer.flops == 2 * 2 * 6 * 9 * 4


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGH", "HIGHEST"])
def test_the_precision_is_the_one_asked_for(precision: str) -> None:
    def step(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        return jnp.dot(inputs, weights, precision=precision.lower())

    assert only(step, zeros(5, 7), zeros(8, 5)).precision == precision


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGHEST"])
def test_a_convolution_tells_its_sizes_and_work(precision: str) -> None:
    def step(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return jax.lax.conv(images, kernel, (2, 2), "SAME", precision=precision.lower())

    layer = only(step, zeros(7, 3, 3, 5), zeros(4, 3, 16, 16))
    assert (layer.kind, layer.kernel, layer.precision) == ("convolution", (3, 5), precision)
    assert sizes(layer) == (4 * 8 * 8, 3, 7)
    assert layer.flops == 2 * (4 * 8 * 8) * 3 * 7 * 15


def test_a_convolution_with_channels_last_is_the_same() -> None:
    def step(kernel: jax.Array, images: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=numbers
        )

    layer = only(step, zeros(3, 5, 2, 7), zeros(4, 6, 6, 2))
    assert (layer.kernel, sizes(layer)) == ((3, 5), (4 * 36, 2, 7))


def test_a_convolution_in_groups_sums_over_those_of_its_group() -> None:
    def step(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(images, kernel, (1,), "SAME", feature_group_count=4)

    layer = only(step, zeros(8, 1, 3), zeros(2, 4, 10))
    assert (layer.kernel, sizes(layer)) == ((3,), (20, 1, 8))
    assert layer.flops == 2 * 20 * 8 * 3
