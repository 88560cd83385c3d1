"""What is learned of jitted calls while they are made, and that they are as ever."""

import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.calls import (
    PROBED,
    SAMPLED_BYTES,
    Prober,
    address,
    contents,
    dynamic,
    form_of,
    is_ready,
    is_tracing,
    kind_of,
)
from tests.observe.agent.heard import leaves, makers, probed

OLD_JAX = jax.__version__.startswith("0.8.")


def test_no_array_is_kept_alive() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x, y: x + y)
    x, y = jnp.ones(10), jnp.zeros(10)
    z = jax.block_until_ready(add(x, y))
    gone = [weakref.ref(each) for each in (x, y, z)]
    del x, y, z
    assert [each() is None for each in gone] == [True, True, True]


def test_an_address_of_an_array_that_died_is_no_mark_of_the_next_one() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    total = made.jit(lambda x: x.sum())
    for _ in range(20):
        total(np.ones(1000, np.float32))  # the heap gives out the same place again
    numbers = [call.inputs[0].number for call in prober.calls]
    assert len(set(numbers)) == len(numbers)


def test_our_own_trouble_is_none_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    monkeypatch.setattr("perfdoctor.observe.agent.calls.form_of", lambda *_: 1 / 0)
    assert add(1.0) == 2.0
    assert prober.failure == "ZeroDivisionError: division by zero"
    assert prober.done.is_set() and prober.calls == []


def test_trouble_with_results_is_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    monkeypatch.setattr(prober, "_note", lambda *_: 1 / 0)
    assert made.jit(lambda x: x + 1)(1.0) == 2.0
    assert prober.done.is_set()


def test_a_call_that_raises_is_not_probed() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    with pytest.raises(ZeroDivisionError):
        made.jit(lambda x: x / (1 // 0))(1.0)
    assert prober.calls == [] and prober.failure is None


def test_calls_of_a_function_that_is_traced_are_not_probed() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    inner = made.jit(lambda x: x + 1)
    outer = made.jit(lambda x: jax.lax.scan(lambda c, _: (inner(c), None), x, length=3)[0])
    assert outer(1.0) == 4.0
    assert [call.function.name for call in prober.calls] == ["<lambda>"]
    assert prober.calls[0].function.jitted is outer._perfdoctor_function.jitted


def test_whether_jax_traces_is_told() -> None:
    seen: list[bool] = []

    def look(x: Any) -> Any:
        seen.append(is_tracing())
        return x

    jax.jit(look)(1.0)
    assert seen == [True]
    assert not is_tracing()


def test_it_is_enough_after_some_calls() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    for _ in range(PROBED + 10):
        add(1.0)
    assert prober.done.is_set()
    assert len(prober.calls) == PROBED
    assert all(call.begin_ns <= call.end_ns for call in prober.calls)


def test_whether_the_last_results_were_computed_is_told() -> None:
    def program(made: Any) -> Any:
        add = made.jit(lambda x: x + 1)
        x = jnp.ones(10)
        while True:
            x = jax.block_until_ready(add(x))
            yield

    assert all(call.ready for call in probed(program)[0].calls)


class Pending:
    """An array that is not computed yet."""

    def is_ready(self) -> bool:
        return False

    def is_deleted(self) -> bool:
        return False


def test_what_is_not_computed_is_not_ready_and_what_is_gone_is() -> None:
    pending, gone = Pending(), Pending()
    reference = weakref.ref(gone)
    del gone
    assert not is_ready(weakref.ref(pending))
    assert is_ready(reference)
    assert is_ready(None)


@pytest.mark.parametrize("threads", [2, 4])
def test_calls_of_several_threads(threads: int) -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    add(0.0)

    def work() -> None:
        x = jnp.zeros(3)
        for _ in range(10):
            x = add(x)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert prober.failure is None
    assert len(prober.calls) == 10 * threads + 1


@pytest.mark.parametrize(
    ("options", "args", "kwargs", "left"),
    [
        ({}, (1, 2, 3), {}, ((1, 2, 3), {})),
        ({"static_argnums": 1}, (1, 2, 3), {}, ((1, 3), {})),
        ({"static_argnums": -1}, (1, 2, 3), {}, ((1, 2), {})),
        ({"static_argnums": (0, 2)}, (1, 2, 3), {}, ((2,), {})),
        ({"static_argnames": "b"}, (1, 2, 3), {}, ((1, 3), {})),
        ({"static_argnames": "b"}, (1,), {"b": 2, "c": 3}, ((1,), {"c": 3})),
        ({"static_argnames": ("b", "c")}, (1, 2), {"c": 3}, ((1,), {})),
        ({"static_argnums": 1}, (1,), {"b": 2, "c": 3}, ((1,), {"c": 3})),
    ],
)
def test_static_arguments_are_left_out(
    options: dict[str, Any], args: tuple[int, ...], kwargs: dict[str, int], left: Any
) -> None:
    function = Function(jax.jit(lambda a, b, c: a + b + c, **options))
    assert dynamic(function, args, kwargs) == left


def test_names_are_those_of_the_parameters_with_the_path_in_their_trees() -> None:
    function = Function(jax.jit(lambda params, n, *more, rate: 0, static_argnums=1))
    args = ({"w": [1.0, 2.0]}, 7, 3.0)
    form = form_of(jax, function, args, {"rate": 0.1})
    assert form.names == ("params['w'][0]", "params['w'][1]", "args[2]", "rate")


@pytest.mark.parametrize(
    ("options", "donated"),
    [
        ({}, (False, False, False)),
        ({"donate_argnums": 0}, (True, True, False)),
        ({"donate_argnames": "x"}, (False, False, True)),
        ({"donate_argnums": 2, "static_argnums": 1}, (False, False, True)),
        ({"donate_argnums": (0, 2), "static_argnames": "n"}, (True, True, True)),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_donated_arguments(options: dict[str, Any], donated: Any, by_name: bool) -> None:
    if OLD_JAX and not by_name and any(name.startswith("static") for name in options):
        pytest.skip("jax 0.8 counts what is donated without the static arguments")
    function = Function(jax.jit(lambda params, n, x: 0, **options))
    params, x = {"a": jnp.ones(2), "b": jnp.ones(2)}, jnp.ones(3)
    args, kwargs = ((params,), {"n": 1, "x": x}) if by_name else ((params, 1, x), {})
    form = form_of(jax, function, args, kwargs)
    found = dict(zip(form.names, form.donated, strict=True))
    found.pop("n", None)
    assert tuple(found.values()) == donated


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "scalar"),
        (True, "scalar"),
        (1.5, "scalar"),
        (1j, "scalar"),
        (np.float64(1.5), "host"),
        (np.float32(1.5), "host"),
        (np.ones(3), "host"),
        (jnp.ones(3), "device"),
        (jax.random.key(0), "key"),
        (jax.random.PRNGKey(0), "device"),
    ],
    ids=str,
)
def test_kinds(value: Any, kind: str) -> None:
    assert kind_of(jax, value) == kind


def test_the_form_of_an_argument() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x, rate: p + rate * x.mean())
        p = jnp.zeros(3, jnp.bfloat16)
        while True:
            p = step(p, np.ones((4, 2), np.float32), 0.5).astype(jnp.bfloat16)
            yield

    found = leaves(program)
    assert (found["x"].shape, found["x"].dtype, found["x"].bytes) == ((4, 2), "float32", 32)
    assert (found["p"].dtype, found["p"].bytes, found["p"].sharding) == ("bfloat16", 6, "")
    assert (found["rate"].kind, found["rate"].shape) == ("scalar", ())


ARRAYS = some.arrays(
    dtype=st.sampled_from([np.float32, np.int8, np.bool_, np.complex64]),
    shape=some.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


@given(ARRAYS)
def test_contents_are_the_same_for_the_same_values(array: Any) -> None:
    assert contents(array) == contents(array.copy())


@given(st.integers(0, SAMPLED_BYTES - 1))
def test_another_byte_of_a_small_array_is_other_contents(place: int) -> None:
    array = np.zeros(SAMPLED_BYTES, np.uint8)
    before = contents(array)
    array[place] = 1
    assert contents(array) != before


def test_contents_of_large_arrays_and_of_parts_of_them() -> None:
    large = np.zeros((1000, 1000))
    before = contents(large), contents(large.T), contents(large[:, ::2])
    large[:] = 1
    after = contents(large), contents(large.T), contents(large[:, ::2])
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_of_what_lies_on_a_device_contents_are_not_asked_for() -> None:
    assert contents(jnp.ones(3)) == contents(3.0) == 0


def test_an_address_that_can_not_be_told() -> None:
    x = jnp.ones(3)
    assert address(x) == address(x)
    x.delete()
    assert address(x) is None
    assert address(3.0) is None
