from types import SimpleNamespace

import pytest

from perfdoctor.observe.digest.events import thread_of
from perfdoctor.observe.digest.runs import (
    ASKED,
    EDGE,
    Operation,
    Run,
    Runs,
    begins_of,
    computed_ms,
    operation_ms,
    runs_of,
)
from tests.observe.digest.made_up import event


def operation(name: str, at: int, run: int, program: int = 1) -> list[SimpleNamespace]:
    stats = {"hlo_module": f"jit_{program}", "program_id": program, "run_id": run}
    return [event(name, at, at + 5, **stats), event(f"end: {name}", at + 5, at + 5)]


def test_runs_are_told_by_each_operation_wherever_it_ran() -> None:
    inline = thread_of([*operation("dot.1", 100, 7), *operation("dot.1", 300, 9)], 1000)
    pool = thread_of([*operation("dot.1", 200, 8), *operation("add", 210, 8)], 1000)
    assert runs_of([inline, pool]) == {
        Operation("jit_1", 1, "dot.1"): Runs(Run(7, 1100), Run(9, 1300), 3),
        Operation("jit_1", 1, "add"): Runs(Run(8, 1210), Run(8, 1210), 1),
    }


def test_programs_whose_operations_have_the_same_name_are_told_apart() -> None:
    mixed = [
        each
        for number in range(2 * EDGE)
        for program in (1, 2)
        for each in operation("dot", 20 * number + program, number // program, program)
    ]
    found = runs_of([thread_of(mixed, 0)])
    first, second = found[Operation("jit_1", 1, "dot")], found[Operation("jit_2", 2, "dot")]
    assert (first.first.number, first.last.number) == (0, 2 * EDGE - 1)
    assert (second.first.number, second.last.number) == (0, EDGE - 1)


def test_an_operation_without_a_run_tells_none() -> None:
    assert runs_of([thread_of([event("dot", 1, 2), event("end: dot", 2, 2)], 0)]) == {}


def begins(*operations: SimpleNamespace) -> dict[str, list[int]]:
    """By the name of programs, when their runs began."""
    threads = [thread_of(list(operations), 1000)]
    return {name: list(found) for name, found in begins_of(threads, runs_of(threads)).items()}


def test_runs_begin_with_what_each_does_once_and_no_other_program_does() -> None:
    made = [
        *operation("dot", 100, 7),
        *operation("dot", 110, 7),  # twice in a run
        *operation("add", 120, 7),
        *operation("norm", 130, 7),
        *operation("dot", 200, 8),
        *operation("dot", 210, 8),
        *operation("add", 220, 8),
        *operation("norm", 230, 8),
        *operation("norm", 250, 1, program=2),
    ]
    assert begins(*made) == {"jit_1": [1120, 1220]}


def of_shape(program: int, name: str, at: int, run: int) -> list[SimpleNamespace]:
    """An operation of one of the programs for a function's several shapes."""
    stats = {"hlo_module": "jit_step", "program_id": program, "run_id": run}
    return [event(name, at, at + 5, **stats), event(f"end: {name}", at + 5, at + 5)]


def test_the_runs_of_all_shapes_of_a_function_are_told_or_none() -> None:
    both = [
        *of_shape(1, "dot.8", 100, 1),
        *of_shape(2, "dot.16", 200, 1),
        *of_shape(1, "dot.8", 300, 2),
        *of_shape(2, "dot.16", 400, 2),
    ]
    assert begins(*both) == {"jit_step": [1100, 1200, 1300, 1400]}
    twice = [*both, *of_shape(2, "dot.16", 410, 2)]
    assert begins(*twice) == {}


def ran(name: str, module: str, took_ms: int) -> list[SimpleNamespace]:
    end = took_ms * 1_000_000
    return [event(name, 0, end, hlo_module=module), event(f"end: {name}", end, end)]


def test_time_on_the_cpu_is_told_by_program() -> None:
    inline = ran("dot", "jit_step", 4)
    pool = [
        *ran("dot", "jit_dot", 2),
        *ran("add", "jit_step", 1),
        event("no operation", 0, 9_000_000, hlo_module="jit_step"),
    ]
    found = computed_ms([thread_of(inline, 0), thread_of(pool, 0)])
    in_step_ms = (1 / 3 + 1 / 2 + 2) + 1 / 3  # three at the same time for 1 ms, then two, then one
    assert found == {"jit_step": pytest.approx(in_step_ms), "jit_dot": pytest.approx(1 / 3 + 1 / 2)}


def test_of_many_operations_some_tell_the_program_of_all() -> None:
    mixed = [
        each
        for number in range(20 * ASKED + 1)
        for each in operation("dot", 20 * number, number, program=1 + number % 2)
    ]
    found = computed_ms([thread_of(mixed, 0)])
    whole_ms = (20 * ASKED + 1) * 5e-6
    assert sum(found.values()) == pytest.approx(whole_ms)
    assert found["jit_1"] == pytest.approx(whole_ms / 2, rel=0.3)


def test_operations_are_added_up_by_name_over_all_threads() -> None:
    inline = thread_of([*operation("dot.1", 100, 7), *operation("dot.1", 300, 9)], 0)
    pool = thread_of([*operation("dot.1", 102, 8), event("no operation", 0, 10)], 0)
    assert operation_ms([inline, pool]) == {"jit_1": {"dot.1": pytest.approx(15e-6)}}
