"""Records as text, one in a line, and a table with the terrain of each cell of the map."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .config import Config


class Batch(NamedTuple):
    cell: np.ndarray
    clock: np.ndarray
    lags: np.ndarray
    demand: np.ndarray


class Record(NamedTuple):
    cell: int
    clock: tuple[float, float]
    lags: list[float]
    demand: float


def terrain(config: Config) -> np.ndarray:
    """What is known of each cell: 50 MB that never change."""
    rng = np.random.default_rng(config.seed)
    return rng.standard_normal((config.cells, config.cell_features), dtype=np.float32)


def write(file: Path, config: Config) -> None:
    """Invents the records."""
    rng = np.random.default_rng(config.seed + 1)
    lines, first = [], datetime(2024, 1, 1)
    for _ in range(config.records):
        cell = rng.integers(config.cells)
        when = first + timedelta(hours=int(rng.integers(8760)))
        level = 4 + 3 * np.sin(when.hour / 24 * 2 * np.pi) + (when.weekday() < 5)
        taken = rng.poisson(level, config.lags + 1)
        lines.append(f"{cell};{when:%Y-%m-%d %H:%M};{','.join(map(str, taken))}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))


def parse(line: str) -> Record:
    cell, when, taken = line.split(";")
    time = datetime.strptime(when, "%Y-%m-%d %H:%M")
    *lags, demand = (float(number) for number in taken.split(","))
    return Record(int(cell), (time.hour / 24, time.weekday() / 7), lags, demand)


def collate(records: list[Record]) -> Batch:
    cell, clock, lags, demand = zip(*records, strict=True)
    return Batch(
        np.array(cell, np.int32),
        np.array(clock, np.float32),
        np.array(lags, np.float32),
        np.array(demand, np.float32),
    )


class Records:
    """The records of a file in batches, shuffled anew in each epoch."""

    def __init__(self, config: Config) -> None:
        file = config.data / f"records_{config.records}.txt"
        if not file.exists():
            write(file, config)
        self.lines = file.read_text().splitlines()
        self.all = collate([parse(line) for line in self.lines])
        self.size = config.batch_size
        self.rng = np.random.default_rng(config.seed + 2)

    def __len__(self) -> int:
        return len(self.lines) // self.size

    def __iter__(self) -> Iterator[Batch]:
        order = self.rng.permutation(len(self.lines))
        for rows in order[: len(self) * self.size].reshape(-1, self.size):
            yield Batch(*(column[rows] for column in self.all))
