"""No GPU is within reach of these tests: the GPU's observations are made by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Argument, Executable, Layer
from perfdoctor.schema.surroundings import Backend, Device, Gpu, GpuLibrary
from perfdoctor_checks import cudnn
from perfdoctor_checks._cuda import extra
from perfdoctor_checks._cudnn import FUSED
from perfdoctor_checks._gpu_libraries import version
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
PACKAGES = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda12-plugin": "0.10.2"}
FITS = (
    GpuLibrary(name="cudnn", loaded=91002, built_for=91002),
    GpuLibrary(name="cublas", loaded=120804, built_for=120804),
)
CONVOLUTION = Layer(
    kind="convolution",
    function="Net.__call__",
    file="/src/net.py",
    line=7,
    written=1,
    executed=1,
    flops=1e9,
    rows=1024,
    inputs=32,
    outputs=64,
    kernel=(3, 3),
    dtype="bf16",
)
SCORES = replace(
    CONVOLUTION, kind="product", function="attend", kernel=(), inputs=64, outputs=128, flops=1e9
)
MIXING = replace(SCORES, inputs=128, outputs=64, line=8)
TOKENS = Argument(name="tokens", shape=(8, 128), dtype="i32", donated=False)


def on_gpu(
    libraries: tuple[GpuLibrary, ...] = FITS, packages: dict[str, str] = PACKAGES, **parts: Any
) -> Observation:
    """The healthy run, as if it had run on a GPU with these libraries."""
    seen = recorded("healthy")
    assert seen.libraries is not None
    device = Device(id=0, platform="gpu", kind="H100")
    made = replace(
        seen,
        gpus=(GPU,),
        executable=compiled({"__cudnn$convForward": 2}),
        libraries=replace(seen.libraries, packages=packages),
        backend=Backend(platform="gpu", devices=(device,), start_s=1.0, libraries=libraries),
    )
    return replace(made, **parts)


def computing(*layers: Layer, calls: dict[str, int], tokens: bool = True) -> Observation:
    """On the GPU, a step of these layers that calls these targets."""
    seen = on_gpu()
    assert seen.program is not None
    arguments = (TOKENS,) if tokens else ()
    program = replace(seen.program, layers=layers, arguments=arguments, results=())
    return replace(seen, program=program, executable=compiled(calls))


def compiled(calls: dict[str, int]) -> Executable:
    """What XLA says of a step that calls these targets."""
    return Executable(
        flops=None,
        bytes_accessed=None,
        argument_bytes=0,
        output_bytes=0,
        alias_bytes=0,
        temp_bytes=0,
        custom_calls=calls,
        copied_bytes=0,
    )


def test_has_nothing_to_say_of_a_cpu_or_a_tpu() -> None:
    seen = recorded("healthy")
    assert cudnn.check(seen).kind == "not-applicable"
    assert "CPU" in cudnn.check(seen).summary
    tpu = Backend(platform="tpu", devices=(), start_s=1.0)
    assert cudnn.check(replace(seen, backend=tpu)).kind == "not-applicable"
    assert cudnn.check(replace(on_gpu(libraries=()), gpus=())).kind == "not-applicable"


def test_is_silent_where_all_libraries_fit() -> None:
    outcome = cudnn.check(on_gpu())
    assert outcome.kind == "ok" and outcome.evidence
    assert ("cudnn", "9.10.2") in [(fact.name, fact.value) for fact in outcome.evidence]


def test_a_missing_cudnn_keeps_the_run_from_running() -> None:
    seen = on_gpu((GpuLibrary(name="cudnn", loaded=None, built_for=91002),), steps=None)
    outcome = cudnn.check(seen)
    assert outcome.kind == "issue" and outcome.gain is None
    assert "convolutions fail" in outcome.summary
    assert outcome.fixes[0].how == 'pip install -U "jax[cuda12]"'
    assert_sound(outcome, seen)


def test_a_missing_library_of_a_run_that_has_steps_is_a_hint() -> None:
    seen = on_gpu((GpuLibrary(name="cudnn", loaded=None, built_for=91002),))
    assert cudnn.check(seen).kind == "hint"


def test_why_a_library_could_not_be_loaded_is_told() -> None:
    error = "RuntimeError: Unable to load cuDNN. Is it installed?"
    seen = on_gpu((GpuLibrary(name="cudnn", loaded=None, built_for=91002, error=error),))
    assert cudnn.check(seen).summary == f"cudnn could not be loaded ({error}); convolutions fail"


def test_a_library_that_raises_something_else_is_not_called_missing() -> None:
    error = "RuntimeError: CUDA_ERROR_DEVICES_UNAVAILABLE"
    seen = on_gpu((GpuLibrary(name="cusolver", loaded=None, built_for=11703, error=error),))
    outcome = cudnn.check(seen)
    assert outcome.kind == "hint" and not outcome.fixes
    assert outcome.summary == (
        f"cusolver does not tell its version ({error}), so it is not known whether it fits"
    )


def test_an_older_library_is_named_with_both_versions() -> None:
    seen = on_gpu((GpuLibrary(name="cudnn", loaded=90101, built_for=91002),))
    outcome = cudnn.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary == "cudnn 9.1.1 is older than 9.10.2, which jax was built for"


@pytest.mark.parametrize(("loaded", "kind"), [(91000, "ok"), (91100, "ok"), (90999, "hint")])
def test_patches_are_compatible(loaded: int, kind: str) -> None:
    seen = on_gpu((GpuLibrary(name="cudnn", loaded=loaded, built_for=91002),))
    assert cudnn.check(seen).kind == kind


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [("cudnn", 8907, "8.9.7"), ("cublas", 120804, "12.8.4"), ("cufft", 11303, "11303")],
)
def test_versions_are_written_as_nvidia_does(name: str, number: int, text: str) -> None:
    assert version(name, number) == text


def test_a_plugin_of_another_version_is_a_hint() -> None:
    seen = on_gpu(packages={**PACKAGES, "jax-cuda12-plugin": "0.9.0"})
    outcome = cudnn.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary == "jax-cuda12-plugin 0.9.0 and jaxlib 0.10.2 do not match"


def test_the_extra_is_the_newest_plugin_or_what_the_driver_runs() -> None:
    both = {**PACKAGES, "jax-cuda13-plugin": "0.10.2"}
    assert "cuda13" in extra(on_gpu(packages=both))
    assert "cuda13" in extra(on_gpu(packages={}))
    old = replace(GPU, cuda_driver_version="12.4")
    assert "cuda12" in extra(on_gpu(packages={}, gpus=(old,)))


def test_convolutions_without_cudnn_are_a_hint() -> None:
    seen = computing(CONVOLUTION, calls={"other": 1})
    outcome = cudnn.check(seen)
    assert_sound(outcome, seen)
    assert "src/net.py:7" in outcome.summary
    assert cudnn.check(computing(CONVOLUTION, calls={"__cudnn$convForward": 1})).kind == "ok"


def test_convolutions_that_are_products_need_no_cudnn() -> None:
    assert cudnn.check(computing(replace(CONVOLUTION, kernel=(1, 1)), calls={})).kind == "ok"


def test_attention_in_half_precision_is_to_be_fused() -> None:
    seen = computing(SCORES, MIXING, calls={})
    outcome = cudnn.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == FUSED
    assert cudnn.check(computing(SCORES, MIXING, calls={"__cudnn$fmhaSoftmax": 1})).kind == "ok"


def test_what_is_no_attention_is_not_taken_for_it() -> None:
    single = [replace(each, dtype="f32") for each in (SCORES, MIXING)]
    assert cudnn.check(computing(*single, calls={})).kind == "ok"
    elsewhere = replace(MIXING, function="other")
    assert cudnn.check(computing(SCORES, elsewhere, calls={})).kind == "ok"
    assert cudnn.check(computing(SCORES, MIXING, calls={}, tokens=False)).kind == "ok"


def test_without_the_compiled_step_only_the_libraries_are_looked_at() -> None:
    bare = replace(on_gpu(program=None, executable=None), libraries=None)
    assert cudnn.check(bare).kind == "ok"
