from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from perfdoctor.schema.fix import Fix
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Failure, Setting
from perfdoctor.schema.surroundings import Backend, Device, Gpu
from perfdoctor.trials.change import changed_env
from perfdoctor_checks import backend
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

GPU = Gpu(
    index=0,
    name="NVIDIA H100",
    memory_bytes=80 * 2**30,
    memory_used_bytes=0,
    utilisation_percent=0,
    driver="580.65",
    cuda_driver_version="13.0",
)
OLDER = replace(GPU, driver="535.54", cuda_driver_version="12.2")
PLUGINS = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda13-plugin": "0.10.2"}


def unused(gpu: Gpu = GPU, packages: dict[str, str] = PLUGINS, **parts: Any) -> Observation:
    """The healthy run on the CPU of a machine with this GPU."""
    seen = recorded("healthy")
    assert seen.libraries is not None
    libraries = replace(seen.libraries, packages=packages)
    return replace(seen, gpus=(gpu,), libraries=libraries, **parts)


def fix_of(seen: Observation) -> Fix:
    """The fix of an issue that is sound."""
    outcome = backend.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    return outcome.fixes[0]


def failed(
    stage: Literal["import", "devices", "run"],
    kind: Literal["raised", "hung", "killed", "out-of-memory"],
    **parts: Any,
) -> Observation:
    """A run that did not get as far as its backend."""
    failure = Failure(stage=stage, kind=kind, message="no luck", seconds=1.0)
    return replace(recorded("healthy"), backend=None, failure=failure, **parts)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_on_a_cpu_where_there_is_nothing_else(name: str) -> None:
    outcome = backend.check(recorded(name))
    assert (outcome.kind, outcome.summary) == ("ok", "Loaded cpu backend: 1 device (cpu)")


def test_is_silent_on_a_gpu_that_is_used() -> None:
    devices = tuple(Device(id=n, platform="gpu", kind="H100") for n in range(2))
    outcome = backend.check(unused(backend=Backend(platform="gpu", devices=devices, start_s=2.0)))
    assert (outcome.kind, outcome.summary) == ("ok", "Loaded gpu backend: 2 devices (H100)")


def test_states_what_the_guides_log_lines_state() -> None:
    facts = {fact.name: fact.value for fact in backend.check(unused()).evidence}
    assert facts["Loaded backend"] == "cpu"
    assert facts["device 0"] == "cpu"
    assert facts["cores"] == 2.0
    assert facts["NVIDIA H100"] == 80.0
    assert facts["jaxlib"] == "0.10.2"
    assert "memory" in facts


def test_repeats_what_jax_warned_of() -> None:
    seen = recorded("healthy")
    assert seen.backend is not None
    warned = replace(seen.backend, warnings=("no GPU found, falling back to CPU",))
    evidence = backend.check(replace(seen, backend=warned)).evidence
    assert "no GPU found, falling back to CPU" in [fact.value for fact in evidence]


def test_names_the_gpu_that_is_unused() -> None:
    assert "NVIDIA H100 is there and unused" in backend.check(unused()).summary


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_PLATFORMS", "cpu"),
        ("JAX_PLATFORM_NAME", "cpu"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("CUDA_VISIBLE_DEVICES", "-1"),
    ],
)
def test_a_variable_that_hides_the_gpu_is_removed(name: str, value: str) -> None:
    seen = unused(environment={name: value, "OMP_NUM_THREADS": "2"})
    fix = fix_of(seen)
    assert fix.how == f"unset {name}"
    assert fix.change is not None
    assert changed_env(seen.environment, fix.change, Path()) == {"OMP_NUM_THREADS": "2"}


def test_all_variables_that_hide_the_gpu_are_removed_together() -> None:
    seen = unused(environment={"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""})
    assert fix_of(seen).how == "unset JAX_PLATFORMS CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize("variables", [{"CUDA_VISIBLE_DEVICES": "0"}, {"JAX_PLATFORMS": ""}])
def test_a_variable_that_hides_nothing_is_left_alone(variables: dict[str, str]) -> None:
    assert fix_of(unused(environment=variables)).change is None


def test_a_platform_set_in_the_code_is_named() -> None:
    setting = Setting(name="jax_platforms", value="cpu", origin="code")
    fix = fix_of(unused(settings=(setting,)))
    assert fix.how == "remove jax.config.update(\"jax_platforms\", 'cpu')"


def test_a_missing_plugin_is_to_be_installed() -> None:
    packages = {"jax": "0.10.2", "jaxlib": "0.10.2"}
    fix = fix_of(unused(packages=packages))
    assert fix.how.startswith('pip install -U "jax[cuda13]"')
    assert "there is none" in fix.summary
    assert fix_of(unused(OLDER, packages)).how.startswith('pip install -U "jax[cuda12]"')


def test_a_plugin_newer_than_the_driver_is_to_be_replaced() -> None:
    fix = fix_of(unused(OLDER))
    assert fix.how.startswith('pip install -U "jax[cuda12]"')
    assert "12.2" in fix.summary and "13" in fix.summary


def test_a_plugin_older_than_the_driver_is_not_blamed() -> None:
    packages = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda12-plugin": "0.10.2"}
    fix = fix_of(unused(GPU, packages))
    assert "not 12" not in fix.summary  # drivers run what was made for older versions of CUDA


def test_a_driver_too_old_for_any_plugin_is_to_be_updated() -> None:
    ancient = replace(GPU, driver="450.80", cuda_driver_version="11.0")
    fix = fix_of(unused(ancient, {"jax": "0.10.2", "jaxlib": "0.10.2"}))
    assert "driver" in fix.summary + fix.how


def test_a_plugin_of_another_version_is_named() -> None:
    fix = fix_of(unused(packages={**PLUGINS, "jax-cuda13-plugin": "0.9.0"}))
    assert fix.summary == "plugin 0.9.0 and jaxlib 0.10.2 do not match"


def test_a_plugin_that_fits_and_does_not_start_is_to_be_looked_into() -> None:
    assert "why the plugin does not start" in fix_of(unused()).summary


def test_finds_an_accelerator_that_is_no_gpu() -> None:
    seen = recorded("healthy")
    assert seen.libraries is not None
    tpu = replace(seen, libraries=replace(seen.libraries, accelerators=("Google TPU v5e",)))
    assert "docs.jax.dev" in fix_of(tpu).how
    assert "Google TPU v5e is there and unused" in backend.check(tpu).summary


def test_finds_a_jax_that_cannot_be_imported() -> None:
    seen = failed("import", "raised")
    assert backend.check(seen).summary == "jax can't be imported: no luck"
    assert fix_of(seen).how == "pip install -U jax jaxlib"


def test_finds_a_jax_that_hangs_while_it_is_imported() -> None:
    seen = failed("import", "hung")
    assert backend.check(seen).summary == "jax hangs when it is to be imported: no luck"
    fix_of(seen)


def test_finds_a_backend_that_does_not_start() -> None:
    seen = failed("devices", "raised", gpus=(GPU,))
    assert backend.check(seen).summary == "jax can't list its devices: no luck"
    assert "jax[cuda13]" in fix_of(seen).how


def test_a_platform_that_is_not_there_is_not_to_be_asked_for() -> None:
    fix = fix_of(failed("devices", "raised", environment={"JAX_PLATFORMS": "cuda"}))
    assert fix.how == "unset JAX_PLATFORMS"
    assert fix.change is not None and fix.change.env == {"JAX_PLATFORMS": None}


def test_a_device_that_hangs_is_to_be_looked_at() -> None:
    seen = failed("devices", "hung", gpus=(GPU,))
    assert backend.check(seen).summary.startswith("jax hangs when it is to list its devices")
    assert "nvidia-smi" in fix_of(seen).how


def test_a_run_that_fails_later_is_not_the_backends_fault() -> None:
    seen = recorded("healthy")
    later = replace(
        seen, failure=Failure(stage="run", kind="raised", message="ValueError", seconds=3.0)
    )
    assert backend.check(later).kind == "ok"
    assert backend.check(replace(later, backend=None)).kind == "not-measured"
