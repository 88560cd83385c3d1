"""The data sets, with examples of the shapes and types of the real ones."""

import string
from typing import Any

import numpy as np

from .core import MadeUp
from .features import ClassLabel, Scalar, Text

WORDS, ATOM_FEATURES, BOND_FEATURES, TASKS = 2000, 9, 3, 128


def images(count: int, on: int = 255) -> list[dict[str, Any]]:
    """A square somewhere in each, by the class; uint8[28, 28, 1]."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, count)
    found = np.zeros((count, 28, 28, 1), np.uint8)
    for image, label, shift in zip(found, labels, generator.integers(0, 6, count), strict=True):
        row, column = 1 + 2 * int(label) // 2 * 2 % 14 + int(shift), 2 + 2 * int(label)
        image[row : row + 8, column - 2 : column + 6] = on
    return [{"image": i, "label": n} for i, n in zip(found, labels, strict=True)]


def binary_images(count: int) -> list[dict[str, Any]]:
    """The same with zeros and ones."""
    return images(count, on=1)


def vocabulary() -> list[str]:
    """Made-up words."""
    generator = np.random.default_rng(0)
    letters = np.array(list(string.ascii_lowercase))
    return ["".join(generator.choice(letters, 2 + i % 7)) for i in range(WORDS)]


def sentences(count: int) -> list[bytes]:
    """Words, the first ones more often; 4 to 39 each."""
    generator, words = np.random.default_rng(0), np.array(vocabulary())
    lengths = generator.integers(4, 40, count)
    chosen = (WORDS * generator.random(lengths.sum()) ** 3).astype(int)
    pieces = np.split(words[chosen], np.cumsum(lengths)[:-1])
    return [" ".join(piece).encode() for piece in pieces]


def texts(count: int) -> list[dict[str, Any]]:
    """Sentences under `text`."""
    return [{"text": np.array(each, object)} for each in sentences(count)]


def one_text(count: int) -> list[dict[str, Any]]:
    """All in one; the count is of sentences."""
    return [{"text": np.array(b"\n".join(sentences(count)), object)}]


def reviews(count: int) -> list[dict[str, Any]]:
    """Sentences with a class."""
    return [
        {"idx": np.int32(i), "sentence": np.array(each, object), "label": np.int64(i % 2)}
        for i, each in enumerate(sentences(count))
    ]


def molecules(count: int) -> list[dict[str, Any]]:
    """Graphs of 12 to 39 atoms, each bound to the one before; labels of which some are missing."""
    generator, found = np.random.default_rng(0), []
    for atoms in generator.integers(12, 40, count):
        to = np.arange(1, atoms, dtype=np.int64)
        labels = generator.integers(0, 2, TASKS).astype(np.float32)
        labels[generator.random(TASKS) < 0.3] = np.nan
        found.append(
            {
                "num_nodes": np.array([atoms], np.int64),
                "num_edges": np.array([atoms - 1], np.int64),
                "node_feat": generator.random((atoms, ATOM_FEATURES), np.float32),
                "edge_feat": generator.random((atoms - 1, BOND_FEATURES), np.float32),
                "edge_index": np.stack([to - 1, to], axis=1),
                "labels": labels,
            }
        )
    return found


SETS = {
    "mnist": MadeUp({"train": 20_000, "test": 2_000}, images, {}),
    "binarized_mnist": MadeUp({"train": 20_000, "test": 10_000}, binary_images, {}),
    "tiny_shakespeare": MadeUp({"train": 8_000, "test": 1_500}, one_text, {"text": Text()}),
    "lm1b": MadeUp({"train": 20_000, "test": 2_000}, texts, {"text": Text()}),
    "glue/sst2": MadeUp(
        {"train": 8_000, "validation": 800},
        reviews,
        {"idx": Scalar(), "label": ClassLabel(), "sentence": Text()},
    ),
    "ogbg_molpcba": MadeUp({"train": 4_000, "validation": 400, "test": 400}, molecules, {}),
}
