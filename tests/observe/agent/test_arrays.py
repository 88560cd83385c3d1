"""The values of arrays, and where they lie."""

import subprocess
import sys
import weakref
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from perfdoctor.observe.agent.arrays import (
    SAMPLED_BYTES,
    address,
    bounds_of,
    contents,
    is_ready,
    raw_bytes,
)

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


def test_bounds_and_bytes() -> None:
    assert bounds_of(np.array([[3, -2], [7, 0]])) == (-2, 8)
    assert bounds_of(jnp.array([5])) == (5, 6)
    assert bounds_of(np.ones(3)) == bounds_of(np.ones(0, np.int32)) == (0, 1)
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert raw_bytes(array.T) == np.ascontiguousarray(array.T).tobytes()
    assert bytes(raw_bytes(jnp.ones(2, jnp.bfloat16))) == b"\x80\x3f\x80\x3f"


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


CALLING_BACK = """
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from perfdoctor.observe.agent.arrays import address

def late(value):
    time.sleep(0.002)
    return np.asarray(value)

def one(row):
    total = row.sum()
    return jax.pure_callback(late, total, total, vmap_method="sequential")

@partial(jax.jit, donate_argnums=0)
def train(p, x):
    return p + jax.vmap(one)(x).mean(), x.sum()

@partial(jax.jit, donate_argnums=1)
def sweep(p, x):
    return x + p.mean(), x.mean()

p, x = jnp.ones(8), jnp.ones((64, 12))
for _ in range(8):
    for _ in range(2):
        x, _ = sweep(p, x)
        p, loss = train(p, x)
    found = [address(each) for each in (p, loss, x)]
print(None not in found)
"""


def test_an_array_is_asked_for_its_address_while_its_computation_calls_back() -> None:
    """In a process of its own, which else would never end."""
    command = [sys.executable, "-c", CALLING_BACK]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.stdout == "True\n"
