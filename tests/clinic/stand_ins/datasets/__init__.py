"""A stand-in for Hugging Face's datasets: MNIST with made-up images."""

from typing import Any

import numpy as np

SIZES = {"train": 10_000, "test": 1_000}


def load_dataset(name: str) -> dict[str, dict[str, Any]]:
    """Both splits; images of blobs, uint8[28, 28]."""
    assert name == "mnist", name
    return {split: {"image": images(size)} for split, size in SIZES.items()}


def images(count: int) -> list[np.ndarray[Any, Any]]:
    """A bright square somewhere in each."""
    generator = np.random.default_rng(0)
    found = np.zeros((count, 28, 28), np.uint8)
    for image, (row, column) in zip(found, generator.integers(2, 18, (count, 2)), strict=True):
        image[row : row + 8, column : column + 8] = 255
    return list(found)
