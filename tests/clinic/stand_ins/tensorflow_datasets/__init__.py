"""A stand-in for TensorFlow Datasets: data sets of the real shapes and types, made up.

Images are blobs, texts are random words; each has fewer examples than the real one.
"""

import importlib
from types import SimpleNamespace
from typing import Any

from . import core, decode, features, made_up
from .core import DatasetBuilder

__version__ = "4.9.9"
__all__ = ["ReadConfig", "Split", "as_numpy", "builder", "core", "decode", "features", "load"]
version = SimpleNamespace(__version__=__version__)
Split = SimpleNamespace(TRAIN="train", TEST="test", VALIDATION="validation")


class ReadConfig:
    """Only its name."""


class Iterable:
    """A data set whose elements come as NumPy's arrays."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Any:
        return self._dataset.as_numpy_iterator()


def as_numpy(dataset: Any) -> Iterable:
    """The same as NumPy's arrays."""
    return Iterable(dataset)


def builder(name: str) -> DatasetBuilder:
    """By its name."""
    data: Any = importlib.import_module("tensorflow.data")
    return DatasetBuilder(name, made_up.SETS[name], data.Dataset)


def load(name: str, split: str, with_info: bool = False) -> Any:
    """One split of it."""
    made = builder(name)
    dataset = made.as_dataset(split)
    return (dataset, made.info) if with_info else dataset
