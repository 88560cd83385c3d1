"""Loaders of all kinds, wrapped: what they give, and what else they can."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from perfdoctor.listener.batches import AsyncBatches, Batches, length_of


class Notes(list[Any]):
    """What was told of waits."""

    def __call__(self, begin_ns: int, batch: Any) -> None:
        assert begin_ns > 0
        self.append(batch)


class Loader:
    """As torch's: begins anew in each epoch; a state of its own, as torchdata has it."""

    def __init__(self) -> None:
        self.dataset = "mnist"
        self.at = 0

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[int]:
        for n in range(self.at, 3):
            self.at = n + 1
            yield n
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class GrainIterator:
    """As grain's: the state is the iterator's."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> "GrainIterator":
        return self

    def __next__(self) -> int:
        if self.at == 5:
            raise StopIteration
        self.at += 1
        return self.at

    def get_state(self) -> dict[str, int]:
        return {"at": self.at}

    def set_state(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class GrainLoader:
    """As grain's data set: its iterators have the state."""

    def __iter__(self) -> GrainIterator:
        return GrainIterator()


def test_each_epoch_is_a_pass_and_each_wait_is_told() -> None:
    notes = Notes()
    batches = Batches(Loader(), notes)
    assert [list(batches), list(batches)] == [[0, 1, 2], [0, 1, 2]]
    assert notes == [0, 1, 2, 0, 1, 2]
    assert len(batches) == 3 and batches.dataset == "mnist"


def test_it_can_be_asked_for_one_after_another() -> None:
    batches = Batches([1, 2], Notes())
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(StopIteration):
        next(batches)
    assert batches[0] == 1


def test_a_state_of_the_loader_is_saved_and_set() -> None:
    batches = Batches(Loader(), Notes())
    first = iter(batches)
    next(first)
    state = batches.state_dict()
    again = Batches(Loader(), Notes())
    again.load_state_dict(state)
    assert list(again) == [1, 2]


def test_a_state_of_the_iterator_is_saved_and_set() -> None:
    batches = Batches(GrainLoader(), Notes())
    passing = iter(batches)
    assert [next(passing), next(passing)] == [1, 2]
    state = batches.get_state()
    assert state == {"at": 2} and passing.get_state() == state  # type: ignore[attr-defined]
    again = Batches(GrainLoader(), Notes())
    again.set_state(state)
    assert list(again) == [3, 4, 5]


def test_grains_own_iterator_goes_on_where_it_was() -> None:
    grain = pytest.importorskip("grain.python")
    data = grain.MapDataset.range(8).batch(2).to_iter_dataset()
    batches = Batches(data, Notes())
    passing = iter(batches)
    first = [next(passing) for _ in range(2)]
    state = batches.get_state()
    again = Batches(data, Notes())
    again.set_state(state)
    rest = list(again)
    assert np.concatenate([*first, *rest]).tolist() == list(range(8))


def test_what_a_loader_cannot_do_it_cannot_either() -> None:
    batches = Batches([1], Notes())
    with pytest.raises(AttributeError, match="get_state"):
        _ = batches.get_state


def test_an_error_of_the_loader_is_its_own() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk")

    notes = Notes()
    batches = Batches(broken(), notes)
    with pytest.raises(OSError, match="the disk"):
        list(batches)
    assert notes == [1]


def test_asynchronous_ones() -> None:
    async def source() -> AsyncIterator[int]:
        for n in range(3):
            await asyncio.sleep(0)
            yield n

    async def read() -> list[int]:
        return [each async for each in batches]

    notes = Notes()
    batches = AsyncBatches(source(), notes)
    assert asyncio.run(read()) == [0, 1, 2] == notes


def test_the_examples_of_a_batch() -> None:
    image, label = np.zeros((8, 28, 28)), np.zeros(8)
    assert length_of({"image": image, "label": label}) == 8
    assert length_of((image, [label, {"rng": 3}])) == 8
    assert length_of({"image": image, "key": np.zeros(2)}) is None
    assert length_of("text") is None
