"""What all programs of a step do together: their layers and tables, and where their time goes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from perfdoctor.observe.digest import program
from perfdoctor.observe.digest.cost import account, parts_of
from perfdoctor.observe.digest.executable import axes_ms, convolutions_in, text_of
from perfdoctor.observe.digest.places import Code
from perfdoctor.schema.program import Layer, Program, Table
from perfdoctor.schema.recording import ExecutableRecord, Recording
from perfdoctor.schema.steps import Steps

MOST_READ = 16
"""Programs of a step that are read: a program that dispatches operations has hundreds."""


def program_of(
    steps: Steps, recording: Recording, missing: dict[str, str], size_bytes: int | None = None
) -> Program | None:
    """The step's main program, with what its other ones compute; why one can't be read is added to
    what is missing. `size_bytes`: of its arguments, by which it is known among those of its name.
    """
    code = Code(own=tuple(recording.own))

    def read(function: str, size: int | None, part: str) -> Program | None:
        try:
            return program.read(Path(recording.programs), function, code, size)
        except Exception as error:  # jaxlib's parser is no stable interface
            missing[part] = f"the StableHLO of {function} can't be read: {error}"
            return None

    main = read(steps.function, size_bytes, "program")
    if main is None:
        return None
    parts = parts_of(steps, recording)
    named = [part for part in parts if part.function == steps.function]
    ours = next((part for part in named if part.size == size_bytes), next(iter(named), None))
    others = [
        (part.times / (ours.times if ours is not None else 1), found)
        for part in parts[:MOST_READ]
        if part != ours and (found := read(part.function, part.size, "layers")) is not None
    ]
    return joined(main, others)


def joined(main: Program, others: Sequence[tuple[float, Program]]) -> Program:
    """The program of a step's main function, with what the others compute in it.

    `others`: how often each is run for a run of the main one. Arguments, results and the lines of
    float64 stay those of the main one.
    """
    runs = [(1.0, main), *others]
    every = [each for _, each in runs]
    return msgspec.structs.replace(
        main,
        operations=added(each.operations for each in every),
        elements_by_dtype=added(each.elements_by_dtype for each in every),
        layers=layers_of(runs),
        loops=tuple(loop for each in every for loop in each.loops),
        callbacks=tuple(callback for each in every for callback in each.callbacks),
        tables=tables_of(every),
        constant_bytes=sum(each.constant_bytes for each in every),
        is_whole=all(each.is_whole for each in every),
    )


def layers_of(runs: Sequence[tuple[float, Program]]) -> tuple[Layer, ...]:
    """The layers of programs that are run so often, the costliest first. One that several programs
    compute is one layer, which is executed more often: a network is no deeper for it.
    """
    found: dict[tuple[Layer, int], Layer] = {}
    for times, each in runs:
        alike: Counter[Layer] = Counter()
        for layer in each.layers:
            kind = msgspec.structs.replace(layer, written=0, executed=0, flops=0.0, rows=0)
            key = kind, alike[kind]  # one program may have it for several numbers of rows
            alike[kind] += 1
            before = found.get(key)
            found[key] = msgspec.structs.replace(
                layer,
                written=max(layer.written, before.written if before else 0),
                executed=max(1, round(times * layer.executed)) + (before.executed if before else 0),
                flops=times * layer.flops + (before.flops if before else 0.0),
                rows=max(layer.rows, before.rows if before else 0),
            )
    return tuple(sorted(found.values(), key=lambda layer: layer.flops, reverse=True))


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums, by name."""
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(found)


def tables_of(programs: Sequence[Program]) -> tuple[Table, ...]:
    """The tables that one looks up, and perhaps another one computes; each shape once.

    The rows that a step uses are those of the program that looks up most: what several look up may
    be the same rows, or those of another update of the table.
    """
    looked_up: Counter[tuple[int, ...]] = Counter()
    computed: Counter[tuple[int, ...]] = Counter()
    for each in programs:
        for table in each.tables:
            looked_up[table.shape] = max(looked_up[table.shape], table.looked_up)
            computed[table.shape] += table.computed
    return tuple(
        Table(shape=shape, looked_up=count, computed=computed[shape])
        for shape, count in looked_up.items()
        if count
    )


def records_of(steps: Steps, recording: Recording) -> list[ExecutableRecord]:
    """XLA's accounts of the programs of a step, one for each name."""
    parts = parts_of(steps, recording)
    found = [record for part in parts for record in account(part, recording)]
    return list({record.name: record for record in reversed(found)}.values())


def axis_shares(
    folder: Path,
    records: Sequence[ExecutableRecord],
    operation_ms: Mapping[str, Mapping[str, float]],
) -> dict[int, float]:
    """The share of the time of all operations that those take which touch arrays with a long axis,
    by its length. `operation_ms`: by the name of a program, and of its operation.
    """
    whole_ms, touched = 0.0, defaultdict[int, float](float)
    for record in records:
        its_ms, axes = axes_ms(text_of(folder, record), operation_ms.get(record.name, {}))
        whole_ms += its_ms
        for length, took_ms in axes.items():
            touched[length] += took_ms
    return {length: took_ms / whole_ms for length, took_ms in touched.items() if whole_ms > 0}


def convolutions_share(
    folder: Path,
    records: Sequence[ExecutableRecord],
    operation_ms: Mapping[str, Mapping[str, float]],
) -> float:
    """The share of the time of all operations that convolutions take."""
    whole_ms = sum(sum(told.values()) for told in operation_ms.values())
    theirs_ms = sum(
        operation_ms.get(record.name, {}).get(name, 0.0)
        for record in records
        for name in convolutions_in(text_of(folder, record))
    )
    return theirs_ms / max(whole_ms, 1e-9)
