"""What a profile tells of the programs that ran on the CPU: which run of each, and how long."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.observe.digest.events import Thread, operations_in, together
from perfdoctor.observe.digest.intervals import Instants, Intervals

RUN_KEYS = {"hlo_module", "program_id", "run_id"}
"""What XLA tells of an operation: its program, and which run of that."""
EDGE = 50
"""Events of one name that are asked for their run, at the begin of a trace and at its end."""
ASKED = 128
"""Events of one name that are asked for their program, drawn from all of a trace."""
FEW_ASKED = 16
"""So many where a trace may hold thousands of names."""

Lengths = npt.NDArray[np.float64]


class Operation(NamedTuple):
    """An operation of a program on the CPU."""

    module: str
    """XLA's name for the program."""
    program: int
    """Its number: programs of one function for several shapes have the same name."""
    name: str


class Run(NamedTuple):
    """A run of a program; XLA numbers those of each one after another, traced or not."""

    number: int
    begin_ns: int
    """When the operation began by which the run is known."""


class Runs(NamedTuple):
    """The first and the last run that began an operation, and how often it did so in all."""

    first: Run
    last: Run
    events: int


def runs_of(threads: Sequence[Thread]) -> dict[Operation, Runs]:
    """The runs of each program, by each of its operations.

    Several programs may have operations of the same name: of each name the first and the last
    events are looked at, so that a program that runs seldom may be missing.
    """
    found: dict[Operation, Runs] = {}
    for name in operations_in(threads):
        having = [thread for thread in threads if name in thread.events]
        events = [event for thread in having for event in thread.events[name]]
        begins = together(thread.spans[name] for thread in having)[:, 0]
        order = np.argsort(begins, kind="stable")
        for index in dict.fromkeys([*order[:EDGE].tolist(), *order[-EDGE:].tolist()]):
            stats = dict(events[index].stats)
            if stats.keys() >= RUN_KEYS:
                operation = Operation(str(stats["hlo_module"]), int(stats["program_id"]), name)
                run = Run(int(stats["run_id"]), int(begins[index]))
                first = found[operation].first if operation in found else run
                found[operation] = Runs(first, run, len(events))
    return found


def begins_of(threads: Sequence[Thread], runs: Mapping[Operation, Runs]) -> dict[str, Instants]:
    """When the runs of programs began, by their name; told where each program of that name, one for
    each shape of its arguments, has an operation that its runs begin once, and no other's do.
    """
    by_program: dict[tuple[str, int], list[Instants]] = defaultdict(list)
    for operation, (first, last, events) in runs.items():
        told = by_program[operation.module, operation.program]
        if not told and events == (last.number - first.number) % 2**32 + 1:
            spans = [
                thread.spans[operation.name] for thread in threads if operation.name in thread.spans
            ]
            told.append(together(spans)[:, 0])
    by_name: dict[str, list[list[Instants]]] = defaultdict(list)
    for (module, _), told in by_program.items():
        by_name[module].append(told)
    return {
        module: np.sort(np.concatenate([begins for told in programs for begins in told]))
        for module, programs in by_name.items()
        if all(programs)
    }


def runs_between(earlier: Run, later: Run) -> int:
    """How many runs lie between two runs of a program; their numbers have 32 bits."""
    return (later.number - earlier.number) % 2**32


def operation_ms(threads: Sequence[Thread]) -> dict[str, dict[str, float]]:
    """What operations took, by XLA's name for their program and their own; what runs beside
    another, or in one, counts in both.
    """
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for module, name, took_ms in told_by_some(threads, lasting_ms, FEW_ASKED):
        found[module][name] = took_ms
    return dict(found)


def computed_ms(threads: Sequence[Thread]) -> dict[str, float]:
    """What the operations of each program took; where several run at the same time, or one in
    another, each its part.
    """
    names, found = operations_in(threads), defaultdict[str, float](float)
    passed_ms = shared_ms(
        together(spans for t in threads for name, spans in t.spans.items() if name in names)
    )
    shared = told_by_some(
        threads, lambda spans: passed_ms(spans[:, 1]) - passed_ms(spans[:, 0]), ASKED
    )
    for module, _, took_ms in shared:
        found[module] += took_ms
    return dict(found)


def told_by_some(
    threads: Sequence[Thread], took: Callable[[Intervals], Lengths], most: int
) -> Iterator[tuple[str, str, float]]:
    """The name of a program, that of an operation, and what this took there. Where programs have
    operations of one name, its time is divided as among the `most` events that are asked.

    `took`: milliseconds of each event, by its span.
    """
    draw = np.random.default_rng(0)
    for name in sorted(operations_in(threads)):
        events = [event for thread in threads for event in thread.events.get(name, ())]
        took_ms = took(together(each.spans[name] for each in threads if name in each.spans))
        asked = draw.permutation(len(events))[:most]
        weight = took_ms.sum() / max(took_ms[asked].sum(), 1e-9)
        found: defaultdict[str, float] = defaultdict(float)
        for index in asked:
            module = dict(events[index].stats).get("hlo_module")
            if module is not None:
                found[str(module)] += float(weight * took_ms[index])
        yield from ((module, name, ms) for module, ms in found.items())


def lasting_ms(spans: Intervals) -> Lengths:
    """Milliseconds of each, overlapping or not."""
    lengths: Lengths = (spans[:, 1] - spans[:, 0]) / 1e6
    return lengths


def shared_ms(spans: Intervals) -> Callable[[Instants], npt.NDArray[np.float64]]:
    """A clock, in milliseconds, that each of so many spans moves at an equal part of the speed."""
    instants = np.concatenate([spans[:, 0], spans[:, 1]])
    changes = np.repeat([1, -1], len(spans))
    order = np.argsort(instants, kind="stable")
    instants, running = instants[order], np.cumsum(changes[order])
    steps_ms = np.diff(instants) / 1e6 / np.maximum(running[:-1], 1)
    passed_ms = np.concatenate([[0.0], np.cumsum(steps_ms)])
    return lambda at: np.interp(at, instants, passed_ms)
