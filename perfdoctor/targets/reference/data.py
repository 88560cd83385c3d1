"""Batches for the reference loop, prepared by grain.

One record of the grain pipeline is a whole batch: an index goes in, arrays come out, so that
grain's threads and worker processes each prepare whole batches.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import grain
import numpy as np
import numpy.typing as npt
from absl import flags
from PIL import Image

from perfdoctor.schema.workload import Data, Workload

Batch = tuple[npt.NDArray[np.generic], npt.NDArray[np.int32]]
SHIFT = 4
"""Pixels by which augmentation moves an image at most."""
ENDLESS = 2**40
"""Batches in the pipeline: more than any run asks for."""


class Examples(Protocol):
    """Where examples come from: all of them by index, arrays out."""

    def __len__(self) -> int: ...
    def read(self, indices: npt.NDArray[np.int64]) -> Batch: ...


class ImageFiles:
    """PNG files in class folders, decoded each time that they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.png"), key=lambda file: file.name)
        self.labels = np.asarray([int(file.parent.name) for file in self.files], np.int32)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, indices: npt.NDArray[np.int64]) -> Batch:
        return np.stack([decode(self.files[i]) for i in indices]), self.labels[indices]


class ImageRecords:
    """Images decoded beforehand, read from one array file."""

    def __init__(self, folder: Path, in_memory: bool) -> None:
        self.images = np.load(folder / "images.npy", mmap_mode=None if in_memory else "r")
        self.labels = np.load(folder / "labels.npy")

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: npt.NDArray[np.int64]) -> Batch:
        return self.images[indices], self.labels[indices]


class TokenRecords:
    """Sequences cut from one file of tokens; the labels are the tokens that follow."""

    def __init__(self, folder: Path, length: int, in_memory: bool) -> None:
        self.tokens = np.load(folder / "tokens.npy", mmap_mode=None if in_memory else "r")
        self.length = length

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.length

    def read(self, indices: npt.NDArray[np.int64]) -> Batch:
        windows = indices[:, None] * self.length + np.arange(self.length + 1)
        tokens = np.asarray(self.tokens[windows], np.int32)
        return tokens[:, :-1], tokens[:, 1:]


def decode(file: Path) -> npt.NDArray[np.uint8]:
    """One image file as uint8[height, width, 3]."""
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB"))


def augment(images: npt.NDArray[np.uint8], random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Shift each image by up to `SHIFT` pixels, at random; uint8[n, height, width, 3] both ways."""
    moves = random.integers(-SHIFT, SHIFT + 1, (len(images), 2))
    moved = [
        np.roll(image, move, axis=(0, 1))
        for image, move in zip(images, moves.tolist(), strict=True)
    ]
    return np.stack(moved)


def examples_of(workload: Workload, folder: Path) -> Examples:
    """The examples as this workload wants them read."""
    data = workload.data
    if workload.model.name in ("lstm", "transformer"):
        return TokenRecords(folder, data.sequence_length, data.source == "memory")
    if data.source == "images":
        return ImageFiles(folder)
    return ImageRecords(folder, data.source == "memory")


class Batches:
    """The batch with a given index: shuffled anew in each epoch, the same in every run."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self.examples = examples_of(workload, folder)
        self.size = workload.training.batch_size
        self.seed = workload.training.seed
        self.augment = workload.data.augment and workload.model.name in ("mlp", "cnn")

    def indices(self, batch: int) -> npt.NDArray[np.int64]:
        """Which examples are in this batch; an epoch may end, and the next begin, inside it."""
        positions = np.arange(batch * self.size, (batch + 1) * self.size)
        epochs, offsets = np.divmod(positions, len(self.examples))
        orders = {
            epoch: np.random.default_rng((self.seed, int(epoch))).permutation(len(self.examples))
            for epoch in np.unique(epochs)
        }
        return np.asarray([orders[e][o] for e, o in zip(epochs, offsets, strict=True)])

    def __call__(self, batch: int) -> Batch:
        inputs, labels = self.examples.read(self.indices(batch))
        if self.augment:
            inputs = augment(inputs, np.random.default_rng((self.seed, 1, batch)))  # type: ignore[arg-type]
        return inputs, labels


def batches(workload: Workload, folder: Path) -> Iterator[Batch]:
    """Endless batches: inputs uint8[n, h, w, 3] or int32[n, t], labels int32[n] or int32[n, t]."""
    data: Data = workload.data
    read_options = grain.ReadOptions(
        num_threads=min(data.threads, data.prefetch), prefetch_buffer_size=data.prefetch
    )
    pipeline = grain.MapDataset.range(ENDLESS).map(Batches(workload, folder))
    ready = pipeline.to_iter_dataset(read_options)
    if data.workers:
        flags.FLAGS.mark_as_parsed()  # grain reads its flags where it starts worker processes
        processes = grain.MultiprocessingOptions(
            num_workers=data.workers, per_worker_buffer_size=max(1, data.prefetch)
        )
        ready = ready.mp_prefetch(processes)
    return iter(ready)
