from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Outcome
from perfdoctor.schema.run import Compile, Setting
from perfdoctor.trials.change import changed_env
from perfdoctor_checks import _aids, debug_flags
from tests.calls import call_of
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

Value = bool | int | float | str | None


def script(**parts: Any) -> Observation:
    """The healthy run, as if a script had made it, with these parts."""
    seen = recorded("healthy")
    return replace(seen, target=replace(seen.target, workload=None), **parts)


def setting(
    name: str, value: Value = True, origin: Literal["environment", "code"] = "environment"
) -> Observation:
    """A script's run under one setting."""
    return script(settings=(Setting(name=name, value=value, origin=origin),))


def found(seen: Observation) -> Outcome:
    """The answer, which must be sound: what an aid costs only a trial can tell."""
    outcome = debug_flags.check(seen)
    assert outcome.kind in ("hint", "issue") and outcome.gain is None
    assert_sound(outcome, seen)
    return outcome


def change_of(seen: Observation) -> Change:
    """What a trial is to change."""
    change = found(seen).fixes[0].change
    assert change is not None
    return change


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_where_nothing_is_on(name: str) -> None:
    assert debug_flags.check(recorded(name)).kind == "ok"


def test_finds_a_search_for_nans_that_was_left_on() -> None:
    seen = recorded("debug_flags")
    outcome = found(seen)
    assert outcome.summary.startswith("jax_debug_nans is on")
    assert outcome.fixes[0].how == "[process] env without JAX_DEBUG_NANS"
    assert change_of(seen).env == {"JAX_DEBUG_NANS": None}


@pytest.mark.parametrize("name", sorted(set(_aids.COSTLY)))
def test_what_slows_each_step_is_tried_without(name: str) -> None:
    seen = setting(name, "log" if "guard" in name else True)
    assert change_of(seen).env == {name.upper(): None}
    assert found(seen).fixes[0].how == f"unset {name.upper()}"


@pytest.mark.parametrize("name", _aids.WHILE_COMPILING)
def test_what_costs_nothing_once_compiled_is_named_and_not_tried(name: str) -> None:
    outcome = found(setting(name))
    assert outcome.fixes[0].change is None
    assert "while something is compiled" in outcome.summary


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_debug_nans", False),
        ("jax_transfer_guard", "disallow"),
        ("jax_transfer_guard", "allow"),
        ("jax_debug_log_modules", ""),
        ("jax_enable_x64", True),
        ("jax_default_matmul_precision", "highest"),
    ],
)
def test_settings_that_are_off_or_no_aids_are_left_alone(name: str, value: Value) -> None:
    assert debug_flags.check(setting(name, value)).kind == "ok"


def test_a_setting_made_in_the_code_is_named_and_not_tried() -> None:
    fix = found(setting("jax_debug_nans", origin="code")).fixes[0]
    assert fix.change is None
    assert 'remove jax.config.update("jax_debug_nans"' in fix.how


def test_several_aids_are_switched_off_together_and_the_costly_is_told() -> None:
    settings = (
        Setting(name="jax_enable_checks", value=True, origin="environment"),
        Setting(name="jax_debug_infs", value=True, origin="environment"),
    )
    seen = script(settings=settings)
    assert found(seen).summary.startswith("jax_debug_infs, jax_enable_checks are on: the results")
    assert change_of(seen).env == {"JAX_ENABLE_CHECKS": None, "JAX_DEBUG_INFS": None}


def test_xla_keeps_its_other_flags() -> None:
    flags = "--xla_cpu_enable_fast_math=false --xla_backend_optimization_level=0 --xla_dump_to=/x"
    seen = script(environment={"XLA_FLAGS": flags})
    outcome = found(seen)
    assert outcome.fixes[0].how == 'export XLA_FLAGS="--xla_cpu_enable_fast_math=false"'
    rest = {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}
    assert changed_env(seen.environment, change_of(seen), Path()) == rest


def test_xla_flags_that_are_all_for_debugging_are_unset() -> None:
    seen = script(environment={"XLA_FLAGS": "--xla_hlo_profile --xla_dump_hlo_snapshots=true"})
    assert changed_env(seen.environment, change_of(seen), Path()) == {}


def test_a_dump_is_named_and_not_tried() -> None:
    """It is written when a program is compiled, and costs nothing after."""
    for environment in ({"XLA_FLAGS": "--xla_dump_to=/x"}, {"JAX_DUMP_IR_TO": "/x"}):
        assert found(script(environment=environment)).fixes[0].change is None


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--xla_dump_hlo_as_text=false",
        "--xla_backend_optimization_level=3",
        "--xla_force_host_platform_device_count=8",
        "--xla_hlo_profile=false",
    ],
)
def test_flags_that_are_no_aids_are_left_alone(flags: str) -> None:
    assert debug_flags.check(script(environment={"XLA_FLAGS": flags})).kind == "ok"


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("PYTHONDEVMODE", "1", ""),
        ("PYTHONTRACEMALLOC", "25", "0"),
        ("PYTHONMALLOC", "debug", "pymalloc"),
        ("PYTHONMALLOC", "malloc_debug", "malloc"),
    ],
)
def test_pythons_own_aids(name: str, on: str, off: str) -> None:
    assert change_of(script(environment={name: on})).env == {name: None}
    assert debug_flags.check(script(environment={name: off})).kind == "ok"


def test_a_program_that_trains_without_jit_is_ill_whatever_can_be_measured() -> None:
    for origin in ("code", "environment"):
        assert found(setting("jax_disable_jit", origin=origin)).kind == "issue"
    assert found(setting("jax_debug_nans")).kind == "hint"


def test_a_step_that_checks_itself_is_tried_without() -> None:
    plain, checked = (
        script(calls=StepCalls(calls=(replace(call_of(), is_checked=each),), time_ms=9.0, steps=50))
        for each in (False, True)
    )
    assert debug_flags.check(plain).kind == "ok"
    outcome = found(checked)
    assert outcome.kind == "hint" and "checkify" in outcome.summary
    assert change_of(checked).step == {"program": "unchecked"}
    assert "checkify" in outcome.fixes[0].how


@pytest.mark.parametrize(
    ("compiling_ms", "reason", "kind"),
    [(18.0, None, "issue"), (8.0, None, "hint"), (18.0, "never seen input type", "hint")],
)
def test_a_search_for_leaks_may_have_jax_compile_its_own_functions_again(
    compiling_ms: float, reason: str | None, kind: str
) -> None:
    calls = StepCalls(time_ms=20.0, steps=8, calls=(call_of(),), compiling_ms=compiling_ms)
    again = tuple(
        Compile(function="unstack", seconds=0.2, at_s=at_s, reason=reason) for at_s in range(9)
    )
    seen = replace(setting(_aids.LEAKS, origin="code"), calls=calls, compiles=again)
    outcome = found(seen)
    assert outcome.kind == kind
    assert ("90% of the steps' time" in outcome.summary) == (kind == "issue")
    assert outcome.fixes[0].change is None
