from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdoctor.schema.workload import Data, Model, Training, Workload
from perfdoctor.targets.reference.data import (
    SHIFT,
    Batch,
    Batches,
    augment,
    batches,
    examples_of,
)
from perfdoctor.targets.reference.generate import write

EXAMPLES, IMAGE, SEQUENCE = 23, 8, 5
Source = Literal["images", "records", "memory"]
Name = Literal["mlp", "cnn", "lstm", "transformer"]


def workload(
    *,
    name: Name = "cnn",
    source: Source = "records",
    augment: bool = False,
    batch: int = 6,
    seed: int = 0,
    prefetch: int = 0,
    threads: int = 1,
) -> Workload:
    return Workload(
        model=Model(name=name, depth=2),
        data=Data(
            source=source,
            examples=EXAMPLES,
            image_size=IMAGE,
            sequence_length=SEQUENCE,
            augment=augment,
            prefetch=prefetch,
            threads=threads,
        ),
        training=Training(batch_size=batch, seed=seed),
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write(workload(), folder)
    return folder


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    write(workload(name="lstm"), folder)
    return folder


def order(batches: Batches, epoch: int) -> npt.NDArray[np.int64]:
    """The examples of an epoch, in the order in which the batches bring them."""
    first, last = epoch * EXAMPLES, (epoch + 1) * EXAMPLES
    start = first // batches.size
    stream = np.concatenate([batches.indices(i) for i in range(start, last // batches.size + 1)])
    return stream[first - start * batches.size :][:EXAMPLES]


def assert_same(a: Batch, b: Batch) -> None:
    for mine, theirs in zip(a, b, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@settings(deadline=None)
@given(batch=st.integers(1, 60), seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 2000))
def test_every_epoch_is_a_permutation(images: Path, batch: int, seed: int, epoch: int) -> None:
    batches = Batches(workload(batch=batch, seed=seed), images)
    assert sorted(order(batches, epoch)) == list(range(EXAMPLES))


def test_each_epoch_has_an_order_of_its_own(images: Path) -> None:
    batches = Batches(workload(), images)
    orders = {tuple(order(batches, epoch)) for epoch in range(5)}
    assert len(orders) == 5


@settings(deadline=None)
@given(index=st.integers(0, 10**6), seed=st.integers(0, 2**31 - 1))
def test_a_batch_is_the_same_in_every_run(images: Path, index: int, seed: int) -> None:
    chosen = workload(augment=True, seed=seed)
    assert_same(Batches(chosen, images)(index), Batches(chosen, images)(index))


def test_another_seed_brings_another_order(images: Path) -> None:
    orders = {tuple(order(Batches(workload(seed=seed), images), 0)) for seed in range(5)}
    assert len(orders) == 5


@pytest.mark.parametrize("source", ["records", "memory"])
def test_images_and_records_give_the_same_pixels(images: Path, source: Source) -> None:
    decoded = Batches(workload(source="images"), images)
    stored = Batches(workload(source=source), images)
    assert len(decoded.examples) == len(stored.examples) == EXAMPLES
    for index in range(5):
        assert_same(decoded(index), stored(index))


def test_image_batches_have_pixels_and_one_label_each(images: Path) -> None:
    inputs, labels = Batches(workload(), images)(0)
    assert (inputs.shape, inputs.dtype.name) == ((6, IMAGE, IMAGE, 3), "uint8")
    assert (labels.shape, labels.dtype.name) == ((6,), "int32")
    assert set(labels.tolist()) <= set(range(10))


@pytest.mark.parametrize("source", ["records", "memory"])
def test_the_labels_of_a_sequence_are_its_next_tokens(tokens: Path, source: Source) -> None:
    inputs, labels = Batches(workload(name="lstm", source=source), tokens)(0)
    assert inputs.shape == labels.shape == (6, SEQUENCE)
    assert inputs.dtype == labels.dtype == np.int32
    np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])


def test_every_token_is_in_one_example(tokens: Path) -> None:
    examples = examples_of(workload(name="transformer"), tokens)
    inputs, labels = examples.read(np.arange(len(examples)))
    stored = np.load(tokens / "tokens.npy")
    np.testing.assert_array_equal(inputs.ravel(), stored[:-1])
    np.testing.assert_array_equal(labels.ravel(), stored[1:])


@settings(deadline=None)
@given(size=st.integers(8, 20), count=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_augmentation_moves_pixels_and_keeps_shape_and_type(
    size: int, count: int, seed: int
) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), np.uint8)
    moved = augment(images, np.random.default_rng(seed))
    assert (moved.shape, moved.dtype.name) == (images.shape, "uint8")
    np.testing.assert_array_equal(
        np.sort(moved.reshape(count, -1)), np.sort(images.reshape(count, -1))
    )


def test_augmentation_moves_by_no_more_than_the_shift() -> None:
    images = np.zeros((200, 32, 32, 3), np.uint8)
    images[:, 16, 16] = 255
    moved = augment(images, np.random.default_rng(0))
    _, rows, columns, _ = np.nonzero(moved)
    assert abs(rows - 16).max() == abs(columns - 16).max() == SHIFT


def test_only_images_are_augmented(tokens: Path, images: Path) -> None:
    assert_same(
        Batches(workload(name="lstm", augment=True), tokens)(0),
        Batches(workload(name="lstm"), tokens)(0),
    )
    plain, moved = Batches(workload(), images), Batches(workload(augment=True), images)
    assert not np.array_equal(moved(0)[0], plain(0)[0])
    np.testing.assert_array_equal(moved(0)[1], plain(0)[1])


def first(batches: Iterator[Batch], count: int = 12) -> list[Batch]:
    return list(islice(batches, count))


@pytest.mark.parametrize(("prefetch", "threads"), [(0, 1), (0, 4), (1, 1), (4, 3)])
def test_threads_and_prefetching_do_not_change_the_batches(
    images: Path, prefetch: int, threads: int
) -> None:
    chosen = workload(augment=True, prefetch=prefetch, threads=threads)
    expected = Batches(chosen, images)
    for index, found in enumerate(first(batches(chosen, images))):
        assert_same(found, expected(index))
