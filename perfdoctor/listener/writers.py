"""Where the lines of a listener can be written; each is called with a `Line`, and may be closed."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.files import check_folder, write_whole
from perfdoctor.listener.line import Line

Writer = Callable[[Line], None]
GENERATIONS = range(3)
PLAIN = (
    "time",
    "iteration",
    "iterations",
    "etl_ms",
    "iteration_ms",
    "samples_per_s",
    "batches_per_s",
    "score",
    "compiles",
    "evaluation_ms",
)
"""Fields of a line that are numbers."""


class JsonLines:
    """Adds each line to a file, as one line of JSON: `perfdoctor.line/1`."""

    def __init__(self, file: str | Path) -> None:
        """UsageError if it can't be written there."""
        check_folder(Path(file))
        self._stream = Path(file).open("ab", buffering=0)  # noqa: SIM115  # until it is closed

    def __call__(self, line: Line) -> None:
        self._stream.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """The file is whole."""
        self._stream.close()


class Csv:
    """Adds each line to a table; a file that is new or empty gets a heading."""

    def __init__(self, file: str | Path) -> None:
        """UsageError if it can't be written there."""
        check_folder(Path(file))
        self._stream = Path(file).open("a", newline="", buffering=1)  # noqa: SIM115
        self._table = csv.DictWriter(self._stream, [*PLAIN, *of_collections(())])
        if not self._stream.tell():
            self._table.writeheader()

    def __call__(self, line: Line) -> None:
        self._table.writerow(numbers(line))

    def close(self) -> None:
        """The file is whole."""
        self._stream.close()


METRICS = {
    "iteration": ("counter", "_total", "Iterations of the loop.", 1.0),
    "iteration_ms": ("gauge", "_seconds", "Time of an iteration, mean.", 1e-3),
    "etl_ms": ("gauge", "_seconds", "Wait for a batch an iteration, mean.", 1e-3),
    "samples_per_s": ("gauge", "", "Examples a second.", 1.0),
    "batches_per_s": ("gauge", "", "Iterations a second.", 1.0),
    "score": ("gauge", "", "Score of the newest iteration.", 1.0),
}
"""Of Prometheus, by the field of a line: kind, the end of its name, what it is, and its factor to
the base unit.
"""


class Prometheus:
    """Writes the newest line to a file, for the textfile collector of node_exporter (`*.prom`)."""

    def __init__(self, file: str | Path) -> None:
        """UsageError if it can't be written there."""
        check_folder(Path(file))
        self._file = Path(file)
        self._compiles = 0
        self._collections = dict.fromkeys(GENERATIONS, 0)
        self._collected_s = dict.fromkeys(GENERATIONS, 0.0)

    def __call__(self, line: Line) -> None:
        self._compiles += line.compiles
        for each in line.collections:
            self._collections[each.generation] += each.count
            self._collected_s[each.generation] += each.total_ms / 1e3
        write_whole(self._file, self._text(line).encode())

    def _text(self, line: Line) -> str:
        parts: list[str] = []
        for field, (kind, end, about, factor) in METRICS.items():
            value = getattr(line, field)
            if value is not None:
                name = field.removesuffix("_ms").replace("samples_per_s", "samples_per_second")
                name = name.replace("batches_per_s", "batches_per_second") + end
                parts += sample(name, kind, about, {"": value * factor})
        parts += sample("compiles_total", "counter", "Programs compiled.", {"": self._compiles})
        by_generation = {f'{{generation="{n}"}}': c for n, c in self._collections.items()}
        about = "Collections of Python's garbage collector."
        parts += sample("gc_collections_total", "counter", about, by_generation)
        seconds = {f'{{generation="{n}"}}': s for n, s in self._collected_s.items()}
        parts += sample("gc_seconds_total", "counter", "Time in these.", seconds)
        return "\n".join(parts) + "\n"


def sample(name: str, kind: str, about: str, values: Mapping[str, float]) -> list[str]:
    """One metric in the text format; `values` by their labels."""
    full = f"perfdoctor_{name}"
    values_then = [f"{full}{labels} {value:.10g}" for labels, value in values.items()]
    return [f"# HELP {full} {about}", f"# TYPE {full} {kind}", *values_then]


def numbers(line: Line) -> dict[str, Any]:
    """A line as a row of a table, by column."""
    return {name: getattr(line, name) for name in PLAIN} | of_collections(line.collections)


def of_collections(collections: Any) -> dict[str, Any]:
    """Counts and times by generation."""
    known = {each.generation: each for each in collections}
    found: dict[str, Any] = {}
    for n in GENERATIONS:
        found[f"gc{n}"] = known[n].count if n in known else 0
        found[f"gc{n}_ms"] = known[n].total_ms if n in known else 0.0
    return found
