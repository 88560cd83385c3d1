"""Layers, loops and callbacks of programs that the installed jax lowers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jax.experimental import io_callback

from perfdoctor.observe.digest.program import parse
from perfdoctor.schema.program import Layer, Program
from perfdoctor.schema.workload import Data, Model, Training, Workload
from perfdoctor.targets.reference.loop import set_up


def program(function: Callable[..., Any], *arguments: Any) -> Program:
    """What the digest makes of a function that jax lowers for these arguments."""
    text = jax.jit(function).lower(*arguments).as_text(debug_info=True)
    return parse(text, "step")


def only(function: Callable[..., Any], *arguments: Any) -> Layer:
    """Its only layer."""
    (layer,) = program(function, *arguments).layers
    return layer


def line_of(text: str) -> int:
    """Where a text stands first in this file."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def zeros(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.zeros(shape, dtype)


def sizes(layer: Layer) -> tuple[int, int, int]:
    return layer.rows, layer.inputs, layer.outputs


def dense(weights: jax.Array, hidden: jax.Array) -> jax.Array:
    return jnp.tanh(hidden) @ weights  # dense


def test_of_two_arguments_the_one_that_is_replaced_has_the_weights() -> None:
    """As of a linear layer that multiplies from the left, and a batch that is larger than it."""

    def step(weights: jax.Array, batch: jax.Array) -> jax.Array:
        return weights + jnp.einsum("oi,bi->ob", weights, batch).sum()

    weights, batch = zeros(128, 10), zeros(8192, 10)
    assert sizes(only(step, weights, batch)) == (8192, 10, 128)
    assert sizes(only(lambda b, w: step(w, b), batch, weights)) == (8192, 10, 128)


def test_a_layer_is_placed_in_its_line() -> None:
    layer = only(dense, zeros(5, 7), zeros(8, 5))
    assert (layer.file, layer.line) == (__file__, line_of("# dense"))
    assert layer.function == "dense"


def test_weights_are_found_through_casts_and_transposes() -> None:
    def step(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        return jnp.einsum("oi,bti->bto", weights.T.astype(jnp.bfloat16), jnp.exp(inputs))

    layer = only(step, zeros(5, 7), zeros(2, 4, 5, dtype=jnp.bfloat16))
    assert (sizes(layer), layer.dtype) == ((8, 5, 7), "bf16")


def test_an_optimizers_state_is_multiplied_by_nothing() -> None:
    """Of layers that lie in one array, too."""

    def step(stack: jax.Array, momentum: jax.Array, batch: jax.Array) -> tuple[jax.Array, ...]:
        def loss(stack: jax.Array) -> jax.Array:
            return jnp.sum(jax.lax.scan(lambda h, w: (dense(w, h), None), batch, stack)[0] ** 2)

        momentum = 0.9 * momentum + jax.grad(loss)(stack)
        return stack - momentum, momentum

    found = program(step, zeros(4, 5, 5), zeros(4, 5, 5), zeros(8, 5))
    assert [each.multiplied for each in found.arguments] == [True, False, False]


def test_the_backward_pass_is_left_out() -> None:
    def loss(weights: list[jax.Array], inputs: jax.Array) -> jax.Array:
        return ((jnp.tanh(inputs @ weights[0]) @ weights[1]) ** 2).mean()

    step = jax.value_and_grad(loss)
    seen = program(step, [zeros(5, 7), zeros(7, 3)], zeros(8, 5))
    assert seen.operations["stablehlo.dot_general"] > 2
    assert [sizes(layer) for layer in seen.layers] == [(8, 5, 7), (8, 7, 3)]


def test_the_backward_pass_of_a_scan_is_left_out() -> None:
    def loss(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, _: (dense(weights, h), None), inputs, length=6)[0].sum()

    seen = program(jax.grad(loss), zeros(5, 5), zeros(8, 5))
    assert [(layer.executed, sizes(layer)) for layer in seen.layers] == [(6, (8, 5, 5))]
    assert [loop.trips for loop in seen.loops] == [6]


def test_the_costliest_layer_stands_first() -> None:
    def step(small: jax.Array, large: jax.Array, inputs: jax.Array) -> jax.Array:
        return dense(large, dense(small, inputs))

    seen = program(step, zeros(2, 3), zeros(3, 50), zeros(8, 2))
    assert [layer.outputs for layer in seen.layers] == [50, 3]


def test_a_scanned_layer_is_written_once_and_executed_in_each_trip() -> None:
    def step(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, _: (dense(weights, h), None), inputs, length=6)[0]

    layer = only(step, zeros(5, 5), zeros(8, 5))
    assert (layer.written, layer.executed) == (1, 6)
    assert layer.flops == 6 * 2 * 8 * 5 * 5


def test_a_scan_in_a_scan_multiplies_its_trips() -> None:
    def step(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        def inner(hidden: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jax.lax.fori_loop(0, 3, lambda _, h: dense(weights, h), hidden), None

        return jax.lax.scan(inner, inputs, length=4)[0]

    seen = program(step, zeros(5, 5), zeros(8, 5))
    (layer,) = seen.layers
    assert (layer.written, layer.executed) == (1, 12)
    assert sorted(loop.trips for loop in seen.loops) == [3, 4]


def test_weights_that_a_loop_hands_on_are_still_weights() -> None:
    def step(weights: jax.Array, hidden: jax.Array) -> jax.Array:
        def body(state: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jax.vmap(lambda each: weights @ each)(state), None

        return jax.lax.scan(body, jnp.sin(hidden), length=6)[0]

    assert sizes(only(step, zeros(5, 5), zeros(8, 5))) == (8, 5, 5)


def test_weights_stacked_for_a_scan_are_still_weights() -> None:
    def step(stack: jax.Array, hidden: jax.Array) -> jax.Array:
        def body(state: jax.Array, weights: jax.Array) -> tuple[jax.Array, None]:
            return jax.vmap(lambda each: weights @ each)(state), None

        return jax.lax.scan(body, jnp.sin(hidden), stack)[0]

    layer = only(step, zeros(6, 5, 5), zeros(8, 5))
    assert (sizes(layer), layer.executed) == ((8, 5, 5), 6)


def test_a_function_called_twice_is_executed_twice() -> None:
    called = jax.jit(dense)

    def step(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        return called(weights, called(weights, inputs))

    assert only(step, zeros(5, 5), zeros(8, 5)).executed == 2


def test_equal_layers_of_a_python_loop_are_one_written_often() -> None:
    def step(stack: list[jax.Array], hidden: jax.Array) -> jax.Array:
        for weights in stack:
            hidden = jnp.tanh(hidden @ weights)
        return hidden

    layer = only(step, [zeros(5, 5)] * 4, zeros(8, 5))
    assert (layer.written, layer.executed) == (4, 4)
    assert layer.flops == 4 * 2 * 8 * 5 * 5


def test_layers_of_one_line_that_differ_are_several() -> None:
    def step(stack: list[jax.Array], hidden: jax.Array) -> jax.Array:
        for weights in stack:
            hidden = jnp.tanh(hidden @ weights)
        return hidden

    seen = program(step, [zeros(5, 7), zeros(7, 3)], zeros(8, 5))
    assert [layer.written for layer in seen.layers] == [1, 1]


def test_the_projections_of_one_attention_are_no_layer_written_often() -> None:
    attention = eqx.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
    weights, static = eqx.partition(attention, eqx.is_array)

    def step(weights: Any, hidden: jax.Array) -> jax.Array:
        calm = jnp.tanh(hidden)
        return eqx.combine(weights, static)(calm, calm, calm)

    layers = program(step, weights, zeros(6, 8)).layers
    assert len(layers) == 6  # queries, keys, values, scores, their mean, output
    assert {layer.written for layer in layers} == {1}


def step_of(model: Model) -> Program:
    """The training step of the reference loop with a model of tokens."""
    data = Data(source="memory", examples=20, sequence_length=6)
    state, step = set_up(Workload(model=model, data=data, training=Training(batch_size=3)))
    tokens = zeros(3, 6, dtype=jnp.int32)
    return parse(step.lower(state, tokens, tokens).as_text(debug_info=True), "step")


def test_an_lstm_is_the_same_scanned_or_written_out() -> None:
    scanned, written = (
        [each for each in step_of(Model(name="lstm", width=5, depth=1, scan=scan)).layers
         if each.outputs == 20]
        for scan in (True, False)
    )  # fmt: skip
    assert [(sizes(e), e.written, e.executed) for e in scanned] == [((3, 5, 20), 1, 6)] * 2
    assert max(each.written for each in written) == 6
    assert {sizes(each) for each in written} >= {(3, 5, 20)}


def test_blocks_of_a_transformer_are_written_once_each() -> None:
    layers = step_of(Model(name="transformer", width=8, depth=3)).layers
    (head,) = [layer for layer in layers if layer.outputs == 256]
    assert head.written == 1
    assert {layer.written for layer in layers if layer is not head} == {3}


def loops(function: Callable[..., Any], *arguments: Any) -> list[tuple[int, int]]:
    return [(loop.trips, loop.line) for loop in program(function, *arguments).loops]


def test_a_loop_is_placed_in_its_line() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 9, lambda _, x: jnp.sin(x), x)  # nine

    (loop,) = program(step, zeros(3)).loops
    assert (loop.trips, loop.file, loop.line) == (9, __file__, line_of("# nine"))
    assert loop.function.endswith("step")


def test_a_loop_without_a_fixed_length_is_none() -> None:
    def step(x: jax.Array, limit: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < limit, lambda x: x + 1, x)

    assert loops(step, zeros(3), zeros()) == []


def test_layers_of_a_loop_without_a_fixed_length_count_once() -> None:
    def step(weights: jax.Array, x: jax.Array, limit: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < limit, lambda x: dense(weights, x), x)

    assert only(step, zeros(5, 5), zeros(8, 5), zeros()).executed == 1


def told(value: Any) -> None: ...


def same(value: Any) -> Any:
    return np.asarray(value)


def called_back(x: jax.Array) -> jax.Array:
    jax.debug.print("x {}", x)  # debug_print
    jax.debug.callback(told, x)  # debug_callback
    io_callback(told, None, x)  # io_callback
    return jax.pure_callback(same, jax.ShapeDtypeStruct((), x.dtype), x)  # pure_callback


@pytest.mark.parametrize("kind", ["debug_callback", "io_callback", "pure_callback"])
def test_callbacks_are_placed_in_their_lines(kind: str) -> None:
    found = {each.kind: each for each in program(called_back, zeros()).callbacks}
    callback = found[kind]
    assert (callback.file, callback.line) == (__file__, line_of(f"# {kind}"))
    assert callback.function == "called_back"


def test_printing_is_a_callback() -> None:
    found = {each.line: each.kind for each in program(called_back, zeros()).callbacks}
    assert found[line_of("# debug_print")] in ("debug_print", "debug_callback")  # by version
    assert len(found) == 4


def test_ordered_callbacks_take_tokens_which_are_no_arrays() -> None:
    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        io_callback(told, None, x, ordered=True)  # ordered
        return jnp.tanh(x) + y

    found = program(step, zeros(3), zeros())
    assert [argument.shape for argument in found.arguments] == [(3,), ()]
    assert found.results == (((3,), "f32"),)
    assert [(each.kind, each.line) for each in found.callbacks] == [
        ("io_callback", line_of("# ordered"))
    ]


def test_a_callback_in_a_loop_is_one() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 9, lambda _, x: called_back(x), x)

    assert len(program(step, zeros()).callbacks) == 4


def test_a_program_without_callbacks_has_none() -> None:
    assert program(dense, zeros(5, 7), zeros(8, 5)).callbacks == ()


def test_a_walk_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program(dense, zeros(5, 7), zeros(8, 5)).is_whole
    monkeypatch.setattr("perfdoctor.observe.digest.layers.MANY", 2)
    assert not program(dense, zeros(5, 7), zeros(8, 5)).is_whole


def test_layers_can_be_kept() -> None:
    layers = program(dense, zeros(5, 7), zeros(8, 5)).layers
    assert msgspec.json.decode(msgspec.json.encode(layers), type=tuple[Layer, ...]) == layers
