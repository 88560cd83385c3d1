"""Builders, and what they tell."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class SplitInfo:
    """A part of a data set."""

    name: str
    shard_lengths: list[int]
    num_bytes: int = 0

    @property
    def num_examples(self) -> int:
        """Its size."""
        return sum(self.shard_lengths)


@dataclass
class DatasetInfo:
    """Parts and features."""

    splits: dict[str, SplitInfo]
    features: dict[str, Any]


@dataclass
class ReadInstruction:
    """A range of a split."""

    splitname: str
    from_: int | None = None
    to: int | None = None
    unit: str = "abs"

    @staticmethod
    def from_spec(spec: str) -> "ReadInstruction":
        """A whole split by its name."""
        return ReadInstruction(spec)

    def to_absolute(self, splits: dict[str, SplitInfo]) -> list["ReadInstruction"]:
        """With its bounds."""
        return [ReadInstruction(self.splitname, 0, splits[self.splitname].num_examples)]


@dataclass(frozen=True)
class MadeUp:
    """How a data set is made."""

    sizes: dict[str, int]
    make: Callable[[int], list[Any]]
    """A list of so many examples."""
    features: dict[str, Any]


class DatasetBuilder:
    """Makes the splits."""

    def __init__(self, name: str, made_up: MadeUp, dataset: Any) -> None:
        self.name = name
        self._made_up = made_up
        self._dataset = dataset
        splits = {split: SplitInfo(split, [size]) for split, size in made_up.sizes.items()}
        self.info = DatasetInfo(splits, made_up.features)

    def download_and_prepare(self) -> None:
        """Nothing to download."""

    def as_dataset(self, split: str | ReadInstruction, shuffle_files: bool = False) -> Any:
        """A whole split."""
        name = split.splitname if isinstance(split, ReadInstruction) else split
        examples = self._made_up.make(self._made_up.sizes[name])
        return self._dataset(lambda: iter(examples))
