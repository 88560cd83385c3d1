from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Argument, Executable, Layer, Loop, Table
from perfdoctor.schema.run import Compile
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor.schema.workload import Model
from perfdoctor_checks import network
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

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
    dtype="f32",
)
DENSE = replace(CONVOLUTION, kind="product", kernel=(), inputs=512, outputs=512, line=8)
CNN = Model(name="cnn")
TOKENS = Argument(name="tokens", shape=(8, 1001), dtype="i32", donated=False)


def built(
    *layers: Layer,
    model: Model | None = None,
    arguments: tuple[Argument, ...] = (),
    loops: tuple[Loop, ...] = (),
    **parts: Any,
) -> Observation:
    """The healthy run, as if its step had these layers; without a model, that of a script."""
    seen = recorded("healthy")
    assert seen.program is not None and seen.target.workload is not None
    workload = None if model is None else replace(seen.target.workload, model=model)
    program = replace(seen.program, layers=layers, arguments=arguments, results=(), loops=loops)
    made = replace(
        seen,
        target=replace(seen.target, kind="workload" if model else "script", workload=workload),
        program=program,
        compiles=(),
    )
    return replace(made, **parts)


def weights(*shape: int) -> Argument:
    """An argument that holds the weights of a dense layer."""
    return Argument(name="w", shape=shape, dtype="f32", donated=False)


def with_shares(shares: dict[int, float]) -> Executable:
    """Of whose operations' time those on axes of these lengths take a part."""
    return Executable(
        flops=None,
        bytes_accessed=None,
        argument_bytes=0,
        output_bytes=0,
        alias_bytes=0,
        temp_bytes=0,
        custom_calls={},
        copied_bytes=0,
        axis_shares=shares,
    )


def compiled(seconds: float) -> tuple[Compile, ...]:
    """The compilation of the step."""
    return (
        Compile(function="other", seconds=99.0, at_s=0.0),
        Compile(function="step", seconds=seconds, at_s=1.0),
    )


def on(platform: str) -> Backend:
    """An accelerator, made by hand."""
    device = Device(id=0, platform=platform, kind=platform)
    return Backend(platform=platform, devices=(device,), start_s=1.0)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_on_networks_of_usual_sizes(name: str) -> None:
    assert network.check(recorded(name)).kind in ("ok", "not-applicable")


def test_layers_within_the_bounds_are_well() -> None:
    outcome = network.check(built(CONVOLUTION, DENSE, model=CNN))
    assert outcome.kind == "ok" and outcome.evidence
    assert network.check(built()).kind == "not-applicable"


def test_a_large_kernel_of_the_workload_is_tried_smaller() -> None:
    large = replace(CONVOLUTION, kernel=(11, 11))
    seen = built(large, DENSE, model=Model(name="cnn", kernel=11))
    outcome = network.check(seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert outcome.gain.basis == "estimated"
    assert_sound(outcome, seen)
    assert outcome.summary == (
        "a kernel of 11×11 (Net.__call__, src/net.py:7, 50% of the forward pass)"
    )
    assert [fix.how for fix in outcome.fixes] == ["[model] kernel = 3", "[model] kernel = 7"]
    assert {fix.changes_results for fix in outcome.fixes} == {"training"}


def test_smaller_kernels_gain_until_the_host_is_the_slower_one() -> None:
    seen = built(replace(CONVOLUTION, kernel=(11, 11), flops=1e12))
    known = seen.steps
    assert known is not None

    def gain(etl_ms: float) -> float:
        times = {"time_ms": 20.0, "device_busy_ms": 20.0, "wait_ms": 0.0}
        steps = replace(known, **times, dispatch_ms=20.0 - etl_ms)
        found = network.check(replace(seen, steps=steps)).gain
        assert found is not None
        return found.speedup

    assert gain(0.0) == pytest.approx(121 / 9, rel=0.02)
    assert gain(5.0) == pytest.approx(4.0)
    assert 1 < gain(20.0) < 1.5


def test_where_the_time_of_convolutions_is_told_it_counts_and_not_their_flops() -> None:
    large = replace(CONVOLUTION, kernel=(9, 9), flops=3e12)
    seen = built(large, replace(CONVOLUTION, flops=1e12), DENSE)
    known = seen.steps
    assert known is not None
    times = {"time_ms": 20.0, "device_busy_ms": 20.0, "wait_ms": 0.0, "dispatch_ms": 20.0}

    def speedup(convolution_ms: float | None) -> float:
        steps = replace(known, **times, convolution_ms=convolution_ms)
        gain = network.check(replace(seen, steps=steps)).gain
        assert gain is not None
        return gain.speedup

    spared = 1 - 9 / 81
    assert speedup(8.0) == pytest.approx(20 / (20 - spared * 8.0 * 3 / 4))
    assert speedup(0.0) == speedup(None) > speedup(8.0)


def test_kernels_up_to_seven_are_well() -> None:
    assert network.check(built(replace(CONVOLUTION, kernel=(7, 7)))).kind == "ok"
    assert network.check(built(replace(CONVOLUTION, kernel=(8, 8)))).kind == "issue"
    assert network.check(built(replace(CONVOLUTION, kernel=(64,)))).kind == "ok"


def test_a_large_kernel_that_takes_little_of_the_work_is_no_finding() -> None:
    patches = replace(CONVOLUTION, kernel=(16, 16), flops=1e7)
    assert network.check(built(DENSE, patches)).kind == "ok"


def test_advice_for_a_script_is_no_change() -> None:
    seen = built(replace(CONVOLUTION, kernel=(11, 11)))
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    assert [fix.change for fix in outcome.fixes] == [None]


def test_many_channels_are_a_hint_where_they_take_the_work() -> None:
    wide = replace(CONVOLUTION, outputs=1025)
    seen = built(wide)
    assert_sound(network.check(seen), seen)
    assert network.check(built(replace(wide, outputs=1024))).kind == "ok"
    assert network.check(built(wide, replace(DENSE, flops=2e9))).kind == "ok"


def test_a_dense_layer_out_of_proportion_is_a_hint() -> None:
    wide = replace(DENSE, inputs=25_000, outputs=4096, flops=9e9)
    seen = built(wide, CONVOLUTION, arguments=(weights(4096, 25_000),))
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    assert "25000 by 4096" in outcome.summary and "90%" in outcome.summary
    assert network.check(built(wide, CONVOLUTION)).kind == "ok"
    many_inputs = replace(wide, outputs=64)
    seen = built(many_inputs, CONVOLUTION, arguments=(weights(64, 25_000),))
    assert network.check(seen).kind == "ok"
    assert network.check(built(wide, arguments=(weights(4096, 25_000),))).kind == "ok"


def test_a_transformers_wide_layers_are_in_proportion() -> None:
    widen = replace(DENSE, inputs=768, outputs=3072, executed=12)
    narrow = replace(DENSE, inputs=3072, outputs=768, line=9, executed=12)
    arguments = (weights(12, 768, 3072), weights(12, 3072, 768), weights(768, 768))
    seen = built(widen, narrow, replace(DENSE, flops=5e8), arguments=arguments)
    assert network.check(seen).kind == "ok"


def test_a_softmax_over_very_many_classes_is_an_issue() -> None:
    head = replace(DENSE, outputs=50_000, flops=9e9)
    seen = built(head, DENSE, arguments=(weights(512, 50_000),))
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "issue"
    assert outcome.summary.startswith("50000 classes")


def test_what_a_softmax_takes_is_told_by_the_operations_on_its_axis() -> None:
    head = replace(DENSE, outputs=50_000, flops=1e7)  # few of the flops
    seen = built(head, DENSE, arguments=(weights(512, 50_000),))
    assert network.check(seen).kind == "ok"
    assert seen.steps is not None
    executable = with_shares({50_000: 0.9})
    busy = replace(seen.steps, time_ms=10.0, device_busy_ms=10.0)
    outcome = network.check(replace(seen, executable=executable, steps=busy))
    assert outcome.kind == "issue" and "90% of the device's time" in outcome.summary
    assert outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(1 / (1 - 0.9 * 0.8))
    assert outcome.gain.high == pytest.approx(10.0)
    batch_is_as_long = built(replace(head, rows=50_000), DENSE, arguments=(weights(512, 50_000),))
    assert network.check(replace(batch_is_as_long, executable=executable, steps=busy)).kind == "ok"


def sweeping(share: float, **table: Any) -> Observation:
    """A table of 400 000 rows takes this share of the device's time."""
    fields = {"shape": (400_000, 16), "looked_up": 5_000, "computed": 9, **table}
    seen = built(DENSE, arguments=(weights(*fields["shape"]),))
    assert seen.steps is not None and seen.program is not None
    executable = with_shares({fields["shape"][0]: share})
    return replace(
        seen,
        executable=executable,
        steps=replace(seen.steps, time_ms=10.0, device_busy_ms=10.0),
        program=replace(seen.program, tables=(Table(**fields),)),
    )


def test_a_table_that_is_computed_anew_for_few_of_its_rows_is_an_issue() -> None:
    seen = sweeping(0.8)
    outcome = network.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "a table of 400000 by 16, of which a step uses 5000 rows" in outcome.summary
    assert outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(1 / (1 - 0.8 * (1 - 1 / 80)))
    assert outcome.gain.high == pytest.approx(5.0)


def test_several_tables_count_together() -> None:
    seen = sweeping(0.4)
    assert seen.program is not None and seen.executable is not None
    tables = (*seen.program.tables, Table(shape=(150_000, 16), looked_up=5_000, computed=9))
    program = replace(seen.program, tables=tables)
    both = replace(seen.executable, axis_shares={400_000: 0.4, 150_000: 0.3})
    outcome = network.check(replace(seen, program=program, executable=both))
    assert outcome.kind == "issue"
    assert "(and 1 more like it): 70% of the device's time" in outcome.summary
    assert outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(1 / (1 - 0.7 * (1 - 1 / 30)))


@pytest.mark.parametrize(
    ("share", "table"),
    [
        (0.2, {}),
        (0.8, {"computed": 0}),
        (0.8, {"looked_up": 200_000}),
        (0.8, {"shape": (9_000, 16), "looked_up": 64}),
        (0.8, {"shape": (DENSE.outputs, 16), "looked_up": 1}),
    ],
    ids=["takes little", "rows only", "many rows", "small", "a layer's weights"],
)
def test_other_tables_are_well(share: float, table: dict[str, Any]) -> None:
    assert network.check(sweeping(share, **table)).kind == "ok"


@pytest.mark.parametrize(("depth", "kind"), [(20, "ok"), (21, "hint"), (62, "issue")])
def test_a_network_of_very_many_dense_layers_is_an_issue(depth: int, kind: str) -> None:
    layers = replace(DENSE, written=depth, executed=depth)
    seen = built(layers, arguments=(weights(512, 512),) * depth)
    seen = replace(seen, compiles=compiled(0.5))
    outcome = network.check(seen)
    assert outcome.kind == kind
    if kind != "ok":
        assert_sound(outcome, seen)
        assert outcome.summary.startswith(f"{depth} dense layers, one after another")


STATE = replace(weights(512, 512), multiplied=False)
"""What an optimizer keeps for a layer."""


@pytest.mark.parametrize(
    "own",
    [
        (weights(512, 512),) * 4,
        (weights(4, 512, 512),),
        (weights(512, 512),) * 8 + (STATE,) * 16,
    ],
)
def test_the_same_dense_layers_written_again_are_no_depth(own: tuple[Argument, ...]) -> None:
    """A derivative of a derivative of some layers, whose weights may lie in one array."""
    seen = built(replace(DENSE, written=32, executed=32), arguments=own)
    assert "one after another" not in network.check(replace(seen, compiles=compiled(0.5))).summary


def test_layers_that_a_loop_takes_one_at_a_time_are_one_after_another() -> None:
    """Beside a loop over pieces of the batch; as many networks beside each other are no depth."""
    over_layers = Loop(trips=28, function="forward", file="/src/net.py", line=3)
    over_pieces = Loop(trips=4, function="train", file="/src/net.py", line=9)
    stacked = (weights(28, 512, 512),)
    seen = built(replace(DENSE, executed=112), arguments=stacked, loops=(over_layers, over_pieces))
    assert "28 dense layers, one after another" in network.check(seen).summary
    beside = built(replace(DENSE, executed=4), arguments=stacked, loops=(over_pieces,))
    assert "one after another" not in network.check(beside).summary


def test_experts_beside_each_other_are_no_depth() -> None:
    """62 layers, of which the program has three that wait for each other."""
    layers = replace(DENSE, written=62, executed=62)
    seen = built(layers, arguments=(weights(512, 512),) * 62)
    assert seen.program is not None
    for chain, is_deep in ((3, False), (62, True)):
        beside = replace(seen, program=replace(seen.program, chain=chain))
        said = network.check(replace(beside, compiles=compiled(0.5))).summary
        assert ("one after another" in said) == is_deep


def test_dense_layers_with_something_else_between_may_be_many() -> None:
    layers = replace(DENSE, written=62, executed=62)
    seen = built(layers, CONVOLUTION, arguments=(weights(512, 512),))
    assert "one after another" not in network.check(replace(seen, compiles=compiled(0.5))).summary


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((8, 1024, 768, 3), "hint"),
        ((8, 3, 1024, 768), "hint"),
        ((8, 600, 600, 3), "ok"),
        ((8, 1024, 1024, 64), "ok"),
        ((8, 1024), "ok"),
    ],
)
def test_images_beyond_600_pixels_are_a_hint(shape: tuple[int, ...], kind: str) -> None:
    image = Argument(name="image", shape=shape, dtype="ui8", donated=False)
    assert network.check(built(CONVOLUTION, arguments=(image,))).kind == kind


@pytest.mark.parametrize(("trips", "kind"), [(1000, "issue"), (1001, "issue"), (600, "ok")])
def test_a_recurrence_over_the_whole_of_a_long_sequence_is_an_issue(trips: int, kind: str) -> None:
    loop = Loop(trips=trips, function="over_time", file="/src/net.py", line=3)
    cell = replace(DENSE, executed=trips)
    seen = built(cell, arguments=(TOKENS,), loops=(loop,))
    outcome = network.check(seen)
    assert outcome.kind == kind
    if kind == "issue":
        assert_sound(outcome, seen)
        assert "100% of the forward pass" in outcome.summary


def test_a_recurrence_a_little_beyond_the_bound_is_a_hint() -> None:
    loop = Loop(trips=510, function="over_time", file="/src/net.py", line=3)
    tokens = replace(TOKENS, shape=(8, 510))
    seen = built(replace(DENSE, executed=510), arguments=(tokens,), loops=(loop,))
    assert network.check(seen).kind == "hint"


def test_two_wide_layers_count_together_with_what_their_operations_take() -> None:
    up = replace(DENSE, inputs=2000, outputs=3072, flops=6e9)
    down = replace(DENSE, inputs=3072, outputs=4000, line=9, flops=3e9)
    seen = built(up, down, CONVOLUTION, arguments=(weights(2000, 3072), weights(3072, 4000)))
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "issue" and "2000 by 3072 and 3072 by 4000" in outcome.summary


def test_a_wide_layer_counts_together_with_the_one_that_reads_it() -> None:
    up = replace(DENSE, inputs=1024, outputs=3072, flops=4e9)
    down = replace(up, inputs=3072, outputs=1024, line=9)
    arguments = (weights(1024, 3072), weights(3072, 1024))
    outcome = network.check(built(up, down, replace(CONVOLUTION, flops=2e9), arguments=arguments))
    assert outcome.kind == "issue" and outcome.gain is not None
    assert "a dense layer of 1024 by 3072" in outcome.summary and "80%" in outcome.summary
    repeated = [replace(each, executed=4) for each in (up, down)]
    assert network.check(built(*repeated, CONVOLUTION, arguments=arguments)).kind == "ok"


def test_many_steps_of_training_in_one_scan_are_no_recurrence() -> None:
    loop = Loop(trips=1000, function="train", file="/src/net.py", line=3)
    batches = Argument(name="batches", shape=(1000, 64, 32), dtype="f32", donated=False)
    seen = built(replace(DENSE, executed=1000), arguments=(batches,), loops=(loop,))
    assert network.check(seen).kind == "ok"
    beside = built(DENSE, arguments=(TOKENS,), loops=(loop,))
    assert network.check(beside).kind == "ok"


def test_a_recurrence_written_out_is_tried_as_a_scan() -> None:
    seen = built(
        replace(DENSE, written=64), model=Model(name="lstm", scan=False), compiles=compiled(9.0)
    )
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    fix = outcome.fixes[0]
    assert fix.how == "[model] scan = true"
    assert fix.change is not None and fix.change.speeds_up == "launch"
    assert "64 equal layers" in outcome.summary and "9.0 s" in outcome.summary


@pytest.mark.parametrize(
    ("written", "seconds", "kind"), [(7, 60.0, "ok"), (8, 60.0, "hint"), (8, 4.0, "ok")]
)
def test_equal_layers_are_a_hint_where_compiling_them_is_long(
    written: int, seconds: float, kind: str
) -> None:
    seen = built(replace(DENSE, written=written), compiles=compiled(seconds))
    outcome = network.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert_sound(outcome, seen)
        assert outcome.fixes[0].change is None


def test_more_than_a_hundred_layers_are_a_hint() -> None:
    layers = [replace(CONVOLUTION, line=n) for n in range(101)]
    seen = built(*layers)
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary == "101 layers"
    assert network.check(built(*layers[1:])).kind == "ok"


@pytest.mark.parametrize(
    ("platform", "size", "kind"),
    [
        ("gpu", 1001, "hint"),
        ("gpu", 1000, "ok"),
        ("tpu", 1000, "ok"),
        ("tpu", 130, "hint"),
        ("tpu", 64, "ok"),
        ("cpu", 1001, "ok"),
    ],
)
def test_sizes_that_miss_the_tiles_are_a_hint_on_accelerators(
    platform: str, size: int, kind: str
) -> None:
    seen = built(replace(DENSE, outputs=size), backend=on(platform))
    outcome = network.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert_sound(outcome, seen)


def test_layers_without_work_divide_by_nothing() -> None:
    seen = built(replace(CONVOLUTION, flops=0.0, kernel=(11, 11)), backend=None)
    assert network.check(seen).kind == "ok"


@pytest.mark.parametrize("layers", [(), (DENSE,)])
def test_a_program_that_was_not_read_to_its_end_is_not_called_well(
    layers: tuple[Layer, ...],
) -> None:
    seen = built(*layers)
    assert seen.program is not None
    program = replace(seen.program, is_whole=False)
    outcome = network.check(replace(seen, program=program, not_measured={"layers": "too many"}))
    assert (outcome.kind, outcome.summary) == ("not-measured", "too many")


def test_what_was_found_before_the_reading_ended_is_told() -> None:
    seen = built(replace(CONVOLUTION, kernel=(11, 11)))
    assert seen.program is not None
    cut = replace(seen, program=replace(seen.program, is_whole=False))
    assert network.check(cut).summary == network.check(seen).summary


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("large_kernel")
    outcome = network.check(seen)
    assert_sound(outcome, seen)
    assert "11×11" in outcome.summary
