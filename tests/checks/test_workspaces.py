from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.schema.calls import Leaf, StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.memory import DeviceMemory
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Argument, Executable
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor_checks import _allocators, workspaces
from tests.calls import call_of
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

MIB = 2**20
GPU = Backend(platform="gpu", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)
STATE = Leaf(
    argument="state",
    role="state",
    kind="device",
    shape=(MIB,),
    dtype="float32",
    bytes=4 * MIB,
)
WARNING = "Some donated buffers were not usable: float32[{}], ShapedArray(int32[10])."


def with_state(
    elements: int, *, donate: bool, executable: bool = True, **training: Any
) -> Observation:
    """The healthy run, as if its state were one array of so many float32."""
    seen = recorded("healthy")
    assert seen.program is not None and seen.target.workload is not None
    state = Argument(name="state", shape=(elements,), dtype="f32", donated=donate)
    data = Argument(name="inputs", shape=(64, 8), dtype="f32", donated=False)
    options = replace(seen.target.workload.training, donate=donate, **training)
    compiled = Executable(
        flops=None,
        bytes_accessed=None,
        argument_bytes=4 * elements,
        output_bytes=4 * elements,
        alias_bytes=4 * elements if donate else 0,
        temp_bytes=0,
        custom_calls={},
        copied_bytes=0,
    )
    workload = replace(seen.target.workload, training=options)
    return replace(
        seen,
        target=replace(seen.target, workload=workload),
        program=replace(seen.program, arguments=(state, data), results=(((elements,), "f32"),)),
        executable=compiled if executable else None,
    )


def in_environment(backend: Backend | None = None, **variables: str) -> Observation:
    """The healthy run with these variables."""
    seen = recorded("healthy")
    return replace(seen, environment=variables, backend=backend or seen.backend)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_where_buffers_are_reused(name: str) -> None:
    assert workspaces.check(recorded(name)).kind == "ok"


def test_finds_a_state_that_may_not_be_overwritten() -> None:
    seen = with_state(MIB, donate=False)
    outcome = workspaces.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.summary == "4.0 MiB of state are not donated, so the step holds them twice"
    assert outcome.fixes[0].how == "[training] donate = true"
    assert "saves 4.0 MiB" in outcome.fixes[0].summary


@pytest.mark.parametrize(("elements", "kind"), [(MIB // 4 - 1, "ok"), (MIB // 4, "hint")])
def test_a_tiny_state_may_be_copied(elements: int, kind: str) -> None:
    assert workspaces.check(with_state(elements, donate=False)).kind == kind


def test_a_donated_counter_is_not_the_state() -> None:
    """The number of the argument that is donated was not changed with the arguments."""
    seen = with_state(MIB, donate=False)
    assert seen.program is not None and seen.executable is not None
    counter = Argument(name="seen", shape=(), dtype="i32", donated=True)
    program = replace(
        seen.program,
        arguments=(counter, *seen.program.arguments),
        results=(((), "i32"), *seen.program.results),
    )
    for alias_bytes, kind in ((4, "hint"), (4 + 4 * MIB, "ok")):
        compiled = replace(seen.executable, alias_bytes=alias_bytes)
        found = workspaces.check(replace(seen, program=program, executable=compiled))
        assert found.kind == kind


def test_what_the_program_asks_to_donate_is_no_matter_of_donating() -> None:
    seen = with_state(MIB, donate=False)
    call = call_of(replace(STATE, donated=True))
    asked = replace(seen, calls=StepCalls(calls=(call,), time_ms=1.0, steps=9))
    assert workspaces.check(asked).kind == "ok"


@pytest.mark.parametrize("executable", [True, False])
def test_a_donated_state_is_well(executable: bool) -> None:
    assert workspaces.check(with_state(MIB, donate=True, executable=executable)).kind == "ok"


def test_the_programs_marks_do_where_xla_was_not_asked() -> None:
    assert workspaces.check(with_state(MIB, donate=False, executable=False)).kind == "hint"


def test_an_operation_outside_of_jit_is_no_step() -> None:
    seen = with_state(MIB, donate=False)
    assert seen.program is not None
    single = {"func.func": 1, "stablehlo.multiply": 1, "func.return": 1}
    assert (
        workspaces.check(replace(seen, program=replace(seen.program, operations=single))).kind
        == "ok"
    )


def test_without_jit_the_workload_has_no_donation_to_switch_on() -> None:
    seen = with_state(MIB, donate=False, jit=False)
    outcome = workspaces.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change == Change(step={"donated": True})


def test_advice_for_a_script_is_code() -> None:
    seen = with_state(MIB, donate=False)
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    outcome = workspaces.check(script)
    assert_sound(outcome, script)
    assert "donate_argnums=0" in outcome.fixes[0].how and outcome.fixes[0].change == Change(
        step={"donated": True}
    )


@pytest.mark.parametrize(("shape", "kind"), [("1024,1024", "hint"), ("10,10", "ok")])
def test_donations_that_can_not_be_used_are_a_hint_if_they_are_large(shape: str, kind: str) -> None:
    seen = replace(recorded("healthy"), messages=(WARNING.format(shape),))
    outcome = workspaces.check(seen)
    assert outcome.kind == kind
    assert "JAX warned" in [fact.name for fact in outcome.evidence]


def test_a_warning_without_shapes_counts() -> None:
    seen = replace(recorded("healthy"), messages=("Some donated buffers were not usable.",))
    assert_sound(workspaces.check(seen), seen)


def test_thresholds_of_malloc_are_to_be_removed_together() -> None:
    seen = in_environment(MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536", NPROC="2")
    outcome = workspaces.check(seen)
    assert_sound(outcome, seen)
    fix = outcome.fixes[0]
    assert fix.how == "unset MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_"
    assert fix.change is not None
    assert fix.change.env == dict.fromkeys(_allocators.MALLOC[:2])


@pytest.mark.parametrize("name", _allocators.MALLOC)
def test_one_threshold_alone_ends_the_adjustment_of_all(name: str) -> None:
    assert (
        workspaces.check(replace(recorded("healthy"), environment={name: "1" + "0" * 9})).kind
        == "hint"
    )


def test_generous_thresholds_are_a_choice() -> None:
    large = str(32 * MIB)
    seen = in_environment(MALLOC_MMAP_THRESHOLD_=large, MALLOC_TRIM_THRESHOLD_=large)
    assert workspaces.check(seen).kind == "ok"


def test_tunables_of_other_things_are_kept() -> None:
    seen = in_environment(GLIBC_TUNABLES="glibc.malloc.trim_threshold=1:glibc.rtld.optional=1")
    outcome = workspaces.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == "export GLIBC_TUNABLES=glibc.rtld.optional=1"
    only = workspaces.check(in_environment(GLIBC_TUNABLES="glibc.malloc.top_pad=1"))
    assert only.fixes[0].how == "unset GLIBC_TUNABLES"
    others = in_environment(GLIBC_TUNABLES="glibc.malloc.tcache_count=9")
    assert workspaces.check(others).kind == "ok"


def test_another_allocator_does_not_read_glibcs_variables() -> None:
    seen = in_environment(MALLOC_TRIM_THRESHOLD_="1", LD_PRELOAD="/usr/lib/libtcmalloc.so.4")
    assert workspaces.check(seen).kind == "ok"
    assert workspaces.check(in_environment(GPU, MALLOC_TRIM_THRESHOLD_="1")).kind == "ok"


def test_a_gpu_is_to_keep_its_pool_by_hand_made_observation() -> None:
    seen = in_environment(
        GPU, XLA_PYTHON_CLIENT_PREALLOCATE="false", XLA_PYTHON_CLIENT_ALLOCATOR="platform"
    )
    outcome = workspaces.check(seen)
    assert_sound(outcome, seen)
    change = outcome.fixes[0].change
    assert change is not None and change.env == dict.fromkeys(seen.environment)
    async_pool = in_environment(GPU, XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async")
    assert workspaces.check(async_pool).kind == "ok"
    assert workspaces.check(in_environment(XLA_PYTHON_CLIENT_PREALLOCATE="false")).kind == "ok"


@pytest.mark.parametrize(("largest", "kind"), [(1, "hint"), (15, "ok"), (None, "ok")])
def test_free_memory_in_pieces_is_a_hint_by_hand_made_observation(
    largest: int | None, kind: str
) -> None:
    device = DeviceMemory(
        in_use_bytes=40 * MIB,
        peak_bytes=60 * MIB,
        limit_bytes=100 * MIB,
        largest_free_bytes=None if largest is None else largest * MIB,
        pool_bytes=None,
    )
    seen = in_environment(GPU)
    assert seen.memory is not None
    outcome = workspaces.check(replace(seen, memory=replace(seen.memory, devices=(device,))))
    assert outcome.kind == kind


def test_several_reasons_make_one_finding_with_a_fix_for_each() -> None:
    seen = replace(with_state(MIB, donate=False), environment={"MALLOC_TRIM_THRESHOLD_": "0"})
    outcome = workspaces.check(seen)
    assert_sound(outcome, seen)
    assert len(outcome.fixes) == 2 and "; " in outcome.summary


def test_without_the_program_nothing_is_called_well() -> None:
    seen = replace(recorded("healthy"), program=None, executable=None, memory=None, backend=None)
    assert workspaces.check(seen).kind == "not-measured"


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("workspaces")
    outcome = workspaces.check(seen)
    assert_sound(outcome, seen)
    assert "MALLOC_MMAP_THRESHOLD_" in outcome.summary


@pytest.mark.parametrize(
    ("source", "donated", "kind"),
    [((1, 0), False, "hint"), ((1, 0), True, "ok"), ((0, 0), False, "ok"), (None, False, "ok")],
)
def test_of_a_step_of_several_calls_each_may_overwrite_what_it_replaces(
    source: tuple[int, int] | None, donated: bool, kind: str
) -> None:
    store = replace(STATE, donated=donated, source=source)
    calls = (call_of(function="gradients"), call_of(store, function="remember"))
    seen = replace(with_state(MIB, donate=True), calls=StepCalls(calls=calls, time_ms=1.0, steps=9))
    outcome = workspaces.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert outcome.summary.startswith("4.0 MiB of state are not donated to remember()")
        assert outcome.fixes[0].change == Change(step={"donated": True})
