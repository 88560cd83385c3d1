"""Reads workload files, and starts the reference loop on a workload."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.workload import Workload

LARGEST_EXAMPLE_SET_BYTES = 8 * 2**30
"""The largest data set that is generated: a choice, so that a mistyped number does not fill a
disk."""
REFERENCE = "perfdoctor.targets.reference"
"""The module that is the reference loop."""


def read(file: Path) -> Workload:
    """The workload in a TOML file; a UsageError that names file and key if it is none."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not a text file in UTF-8, so not TOML") from None
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own, numbers of 5 000 digits, depth
        raise UsageError(f"{file}: not TOML: {printable(str(error))}") from None
    return convert(raw, str(file))


def convert(raw: dict[str, Any], where: str) -> Workload:
    """The workload of plain data; `where` begins the sentence if it is none."""
    for key, siblings in unknown_keys(raw, Workload):
        *table, name = key
        nearest = difflib.get_close_matches(name, siblings, n=1, cutoff=0.4)
        meant = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(siblings)}"
        raise UsageError(f"{where}: unknown key {printable('.'.join([*table, name]))}; {meant}")
    try:
        workload = msgspec.convert(raw, Workload)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {wrong_value(str(error), raw)}") from None
    if problem := impossible(workload):
        raise UsageError(f"{where}: {problem}")
    return workload


def unknown_keys(
    raw: dict[str, Any], kind: type[Struct], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Keys that no field has, each with the names that its table knows."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    for key, value in raw.items():
        if key not in fields:
            yield (*path, key), list(fields)
            continue
        inner = fields[key].type
        if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, dict):
            yield from unknown_keys(value, inner, (*path, key))


def wrong_value(message: str, raw: dict[str, Any]) -> str:
    """msgspec's message with the key first, and what was found there."""
    expected, _, place = message.rpartition(" - at `$")
    keys = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place)
    found: Any = raw
    for name, _ in keys:
        if name and isinstance(found, dict):
            found = found.get(name)
    key = ".".join(name for name, _ in keys if name) or "the file"
    expected = re.sub(r", got `.*`$", "", expected).removeprefix("Expected ").replace("`", "")
    expected = {"object": "a table", "array": "a list"}.get(expected, expected)
    if expected.startswith("Invalid enum value"):
        expected = "one of " + ", ".join(choices(keys))
    return f"{key} = {shown(found)}; expected {expected}"


def choices(keys: list[tuple[str, str]]) -> list[str]:
    """The values that a field with a fixed choice takes."""
    kind: Any = Workload
    for name, _ in keys:
        kind = next(each.type for each in msgspec.structs.fields(kind) if each.name == name)
    return [repr(value) for value in getattr(kind, "__args__", ())]


def shown(value: Any) -> str:
    """A value as a TOML file would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    return printable(f'"{value}"' if isinstance(value, str) else str(value))


def printable(text: str) -> str:
    """On one line, and without what a terminal would obey."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def impossible(workload: Workload) -> str | None:
    """Combinations that no single field shows to be wrong."""
    model, data = workload.model, workload.data
    for name, value in workload.process.env.items():
        if not name or "=" in name or "\0" in name + value:
            return f"process.env has {shown(name)}; expected names without = and NUL"
    if data.folder is not None and "\0" in data.folder:
        return f"data.folder = {shown(data.folder)}; expected a path without NUL"
    sequences = model.name in ("lstm", "transformer")
    if sequences and data.source == "images":
        return (
            f'model.name = "{model.name}" reads tokens, so data.source = "images" has nothing to '
            'decode; expected "records" or "memory"'
        )
    if data.image_size < 2**model.depth and model.name == "cnn":
        return (
            f"model.depth = {model.depth} halves images of data.image_size = {data.image_size} "
            f"to nothing; expected a depth of at most {data.image_size.bit_length() - 1}"
        )
    training = workload.training
    if training.batch_size % training.devices:
        return (
            f"training.batch_size = {training.batch_size} can't be split evenly among "
            f"training.devices = {training.devices}; expected a multiple"
        )
    if training.devices > 1 and (training.schedule != "constant" or training.state_on_host):
        return (
            f"training.devices = {training.devices} goes with the state on the devices and a "
            'constant schedule only; expected schedule = "constant", state_on_host = false'
        )
    size = data.examples * (data.sequence_length * 4 if sequences else 3 * data.image_size**2)
    if size > LARGEST_EXAMPLE_SET_BYTES:
        return (
            f"data.examples = {data.examples} of this size are {size / 2**30:.0f} GiB; "
            f"expected at most {LARGEST_EXAMPLE_SET_BYTES // 2**30} GiB"
        )
    return None


def launch(workload: Workload, spec: Path, dataset: Path, *options: str) -> Launch:
    """How to start the reference loop; writes the workload to `spec` for it to read."""
    spec.write_bytes(msgspec.json.encode(workload))
    return Launch(
        command=("-m", REFERENCE, str(spec), str(dataset), *options),
        env={**os.environ, **workload.process.env},
    )
