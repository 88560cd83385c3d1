from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.observe.digest.cost import cost_of
from perfdoctor.schema.calls import Call, Leaf, StepCalls
from perfdoctor.schema.recording import ExecutableRecord, Recording
from perfdoctor.schema.steps import Steps
from tests.calls import call_of
from tests.recorded import recorded


def executable(function: str, flops: float | None, **sizes: int) -> ExecutableRecord:
    """XLA's account of a program that moves as many bytes as it does FLOPs."""
    fields: dict[str, Any] = {"output_bytes": 0, "alias_bytes": 0} | sizes
    fields = {"argument_bytes": 0, "temp_bytes": 0} | fields
    return ExecutableRecord(name=f"jit_{function}", flops=flops, bytes_accessed=flops, **fields)


def call(function: str, size: int = 0) -> Call:
    """A call whose only argument takes so many bytes."""
    leaf = Leaf(argument="x", role="new", kind="device", shape=(size,), dtype="int8", bytes=size)
    return call_of(leaf, function=function, inside_ms=0.0, inside_cpu_ms=0.0)


def run(*executables: ExecutableRecord, calls: tuple[Call, ...] = ()) -> Recording:
    known = StepCalls(calls=calls, time_ms=5.0, steps=20) if calls else None
    return Recording(start_ns=0, executables=list(executables), step_calls=known)


def steps(calls: dict[str, float], **more: Any) -> Steps:
    known = recorded("healthy").steps
    assert known is not None
    return replace(known, function=next(iter(calls)), calls=calls, threads=1, **more)


GRADIENTS = executable("gradients", 1e9, temp_bytes=700)
UPDATE = executable("update", 1.2e7, temp_bytes=300)


@pytest.mark.parametrize("calls", [(), (call("gradients"),) * 4 + (call("update"),)])
def test_all_programs_of_a_step_are_added_up(calls: tuple[Call, ...]) -> None:
    often = {"update": 1.0, "gradients": 4.02, "evaluate": 0.01}
    found = cost_of(steps(often), run(GRADIENTS, UPDATE, executable("evaluate", 9e9), calls=calls))
    assert found is not None
    assert found.flops == found.bytes_accessed == pytest.approx(4 * 1e9 + 1.2e7)
    assert (found.programs, found.temp_bytes) == (5, 700)


def test_functions_of_one_name_are_told_apart_by_their_arguments() -> None:
    large, small = (
        executable("update", 8e6, argument_bytes=800),
        executable("update", 2e6, argument_bytes=200),
    )
    calls = (call("update", 200), call("update", 800))
    found = cost_of(steps({"update": 2.0}), run(large, small, calls=calls))
    assert found is not None and found.flops == 1e7
    unseen = cost_of(steps({"update": 2.0}), run(large, small))
    assert unseen is not None and unseen.flops == 1.6e7  # by the one that moves most


def test_calls_of_other_steps_say_nothing() -> None:
    often = {"update": 1.0, "gradients": 1.0}
    found = cost_of(steps(often), run(GRADIENTS, UPDATE, calls=(call("evaluate"),)))
    assert found is not None and found.programs == 2


def test_of_several_threads_a_step_is_one_call() -> None:
    busy = replace(steps({"update": 0.5, "gradients": 9.0}), threads=2)
    found = cost_of(busy, run(GRADIENTS, UPDATE))
    assert found is not None and (found.programs, found.flops) == (1, 1.2e7)


def test_what_xla_does_not_tell_is_not_added() -> None:
    often = {"update": 1.0, "gradients": 1.0}
    found = cost_of(steps(often), run(executable("gradients", None), UPDATE))
    assert found is not None and found.flops is None
    assert cost_of(steps(often), run(GRADIENTS)) is None
