import pytest
from msgspec.structs import replace

from perfdoctor.report.summary import PARTS, environment, steps
from perfdoctor.schema.calls import Alone, Eager, StepCalls
from perfdoctor.schema.run import Setting
from perfdoctor.schema.steps import Steps
from tests.calls import call_of
from tests.recorded import recorded

NAMES = ["healthy", "gc_pressure", "slow_etl", "double_precision", "tiny_batch"]


def test_the_environment_of_a_recorded_run() -> None:
    seen = recorded("healthy")
    env = environment(seen)
    assert env["os"] == seen.host.os
    assert env["cores"] == 2.0
    assert (env["backend"], env["devices"], env["gpus"]) == ("cpu", ["cpu"], [])
    assert env["packages"]["jax"] == "0.10.2"
    assert (env["variables"], env["settings"]) == ({}, {})


def test_only_instruction_sets_that_matter_are_named() -> None:
    sets = environment(recorded("healthy"))["vector_sets"]
    assert "avx2" in sets and "avx512f" in sets
    assert "sse2" not in sets and "f16c" not in sets


def test_settings_and_variables_in_force_are_named() -> None:
    seen = replace(
        recorded("healthy"),
        environment={"XLA_FLAGS": "--x"},
        settings=(Setting(name="jax_enable_x64", value=True, origin="code"),),
    )
    env = environment(seen)
    assert env["variables"] == {"XLA_FLAGS": "--x"}
    assert env["settings"] == {"jax_enable_x64": True}


def test_the_environment_of_a_run_that_told_nothing() -> None:
    seen = replace(recorded("healthy"), backend=None, libraries=None, settings=None)
    env = environment(seen)
    assert env["backend"] is None and env["python"] is None
    assert (env["devices"], env["packages"], env["settings"]) == ([], {}, {})


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_a_step_are_the_whole_of_it(name: str) -> None:
    summed = steps(recorded(name))
    assert summed is not None
    assert sum(summed["parts_ms"].values()) == pytest.approx(summed["time_ms"], rel=1e-6)
    assert 0 < summed["device_busy_fraction"] <= 1


def test_every_part_of_the_division_is_taken() -> None:
    exposed = {name for name in Steps.__struct_fields__ if name.startswith("exposed_")}
    within_other = {"exposed_operations_ms", "exposed_sleep_ms"}
    assert set(PARTS.values()) == exposed - within_other | {"device_busy_ms"}


def test_etl_is_the_part_that_the_device_waits_for() -> None:
    seen = recorded("slow_etl")
    summed = steps(seen)
    assert summed is not None and seen.steps is not None
    assert summed["etl_ms"] == summed["parts_ms"]["etl"] == seen.steps.exposed_etl_ms


def test_what_is_no_part_of_the_step_says_nothing_of_it() -> None:
    """As of threads that ask a model which the main thread trains."""
    seen = recorded("healthy")
    assert seen.steps is not None
    alone = Alone(alone_ms=1.0, emulated_ms=1.5, observed_ms=1.6)
    for function, told in (("policy", None), (seen.steps.function, 1.0)):
        calls = StepCalls(calls=(replace(call_of(), function=function),), time_ms=1.6, steps=50)
        found = steps(replace(seen, calls=calls, alone=alone))
        assert found is not None and found["alone_ms"] == told
        assert (found["untraced_ms"] is None) == (told is None)


def test_without_steps_there_is_nothing_to_sum_up() -> None:
    assert steps(replace(recorded("healthy"), steps=None)) is None


@pytest.mark.parametrize(("holds", "alone_ms"), [(("step",), 0.5), ((), None)])
def test_one_function_as_one_program_is_not_the_step_beside_other_jitted_ones(
    holds: tuple[str, ...], alone_ms: float | None
) -> None:
    seen = recorded("several_causes")
    eager = Eager(
        function="fit", file="t.py", line=9, call_ms=9.0, share=0.9, holds=holds, is_saved=True
    )
    alone = Alone(alone_ms=0.5, emulated_ms=None, observed_ms=9.0)
    found = steps(replace(seen, eager=eager, alone=alone))
    assert found is not None and found["alone_ms"] == alone_ms
