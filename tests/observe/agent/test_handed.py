"""Arrays that are seen among the arguments of jax's own functions, which call the test back."""

import sys
import weakref
from collections.abc import Callable

import jax
import numpy as np
import pytest

from perfdoctor.observe.agent.handed import HandedOver
from perfdoctor.schema.run import Handed

ROWS = 2**16


def table(seed: int = 0) -> np.ndarray:
    """Of 2 MiB."""
    return np.random.default_rng(seed).normal(size=(ROWS, 8)).astype(np.float32)


def hand_over(array: np.ndarray, meanwhile: Callable[[], object]) -> None:
    """Call a function of jax's with an array; `meanwhile` is called with jax on the stack."""
    jax.tree_util.tree_map(lambda leaf: meanwhile(), array)


def looked(handed: HandedOver) -> Callable[[], None]:
    """A look at the stack as it is for a thread that is in jax: without the frames of this test."""

    def look() -> None:
        handed.look(sys._getframe(2))

    return look


def only(handed: HandedOver, samples: int = 10) -> Handed:
    """The single line that handed something over."""
    (found,) = handed.found(samples)
    return found


def test_an_array_that_is_the_same_in_each_call_is_no_new_data() -> None:
    handed, array = HandedOver(), table()
    for _ in range(4):
        hand_over(array, looked(handed))
        handed.look(sys._getframe())  # the loop goes on elsewhere
    found = only(handed)
    assert found.place.file == __file__
    assert found.place.function == "hand_over"
    assert found.place.share == 0.4
    assert (found.shape, found.dtype, found.bytes) == ((ROWS, 8), "float32", array.nbytes)
    assert found.unchanged == 1.0
    assert found.is_no_new_data


def test_so_is_one_that_is_filled_row_by_row() -> None:
    handed, array = HandedOver(), table()
    for step in range(20):
        array[64 * step : 64 * (step + 1)] = step
        hand_over(array, looked(handed))
        handed.look(sys._getframe())
    assert only(handed).is_no_new_data


def test_another_batch_in_each_call_is_new_data() -> None:
    handed = HandedOver()
    for step in range(4):
        hand_over(table(step), looked(handed))
        handed.look(sys._getframe())
    assert only(handed).unchanged < 0.1
    assert not only(handed).is_no_new_data


def test_so_is_an_array_that_is_filled_anew() -> None:
    handed, array = HandedOver(), table()
    for step in range(4):
        array[:] = table(step + 1)
        hand_over(array, looked(handed))
        handed.look(sys._getframe())
    assert not only(handed).is_no_new_data


def test_batches_of_other_shapes_are_not_compared() -> None:
    handed = HandedOver()
    for step in range(4):
        hand_over(table()[: ROWS - 64 * step], looked(handed))
        handed.look(sys._getframe())
    assert only(handed).unchanged == 0.0


def test_looks_within_a_call_are_of_one_call() -> None:
    handed = HandedOver()

    def look_often() -> None:
        for _ in range(9):
            handed.look(sys._getframe(2))

    hand_over(table(), look_often)
    assert handed.found(10) == []
    handed.look(sys._getframe())
    hand_over(table(), look_often)
    assert only(handed, 20).place.share == 0.9


@pytest.mark.parametrize(
    "array", [table()[:1024], table().T, np.asarray([None] * 2**18, object)], ids=str
)
def test_small_arrays_and_those_that_lie_in_pieces_are_left_aside(array: np.ndarray) -> None:
    handed = HandedOver()
    for _ in range(3):
        hand_over(array, looked(handed))
        handed.look(sys._getframe())
    assert not any(each.is_no_new_data for each in handed.found(6))


def test_an_array_that_the_program_works_on_is_not_handed_over() -> None:
    handed, array = HandedOver(), table()

    def work(array: np.ndarray) -> None:
        handed.look(sys._getframe())

    for _ in range(3):
        work(array)
    assert handed.found(3) == []


def test_no_array_is_kept() -> None:
    handed, array = HandedOver(), table()
    for _ in range(2):
        hand_over(array, looked(handed))
        handed.look(sys._getframe())
    left = weakref.ref(array)
    del array
    assert left() is None
