import math

import pytest
from msgspec.structs import replace

from perfdoctor.report import figures
from perfdoctor.report.figures import Shown
from perfdoctor.schema.figures import SourceLines, Sweep
from perfdoctor.schema.fix import Change, Fix, Tried
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Layer
from perfdoctor.schema.report import Evidence, Finding
from perfdoctor.trials.trial import measured
from tests.recorded import recorded


def shown(seen: Observation) -> Shown:
    return [(each, measured(each)) for each in seen.tried]


def trial(change: Change, speedup: float, check: str = "omp-threads") -> Tried:
    fix = Fix(summary="", how="", change=change)
    return Tried(check=check, fix=fix, log_ratios=((math.log(speedup),) * 5,) * 3)


def sweep_of(seen: Observation) -> Sweep:
    (found,) = figures.sweeps(seen, shown(seen))
    return found


def test_the_batch_sizes_that_were_tried_make_a_ladder() -> None:
    seen = recorded("tiny_batch")
    assert seen.steps is not None
    found = sweep_of(seen)
    assert found.of == "batch size"
    assert [each.setting for each in found.points] == [2, 32, 64]
    here, knee, _ = found.points
    assert here.is_observed and here.samples_per_s == seen.steps.samples_per_s
    assert knee.is_best and not here.is_best
    gain = next(gain for each, gain in shown(seen) if "= 32" in each.fix.how)
    assert gain is not None
    assert knee.samples_per_s == pytest.approx(here.samples_per_s * gain.speedup)
    assert knee.low < knee.samples_per_s < knee.high


def test_the_knee_is_the_smallest_that_is_nearly_as_good() -> None:
    changes = [(8, 2.0), (16, 3.0), (32, 3.1)]
    trials = [
        trial(Change(workload={"training.batch_size": s}), g, "batch-size") for s, g in changes
    ]
    found = sweep_of(replace(recorded("tiny_batch"), tried=tuple(trials)))
    assert [each.setting for each in found.points if each.is_best] == [16]


def test_of_replayed_steps_the_batch_is_in_the_name_of_the_program() -> None:
    one = trial(Change(step={"program": "batch-2-to-32"}), 2.0, "batch-size")
    found = sweep_of(replace(recorded("tiny_batch"), tried=(one,)))
    assert [each.setting for each in found.points] == [2, 32]


@pytest.mark.parametrize(
    ("change", "name", "settings"),
    [
        (Change(env={"NPROC": "1"}), "threads of XLA", [1, 2]),
        (Change(workload={"data.workers": 3, "data.prefetch": 4}), "loader processes", [0, 3]),
        (Change(workload={"data.threads": 4}), "loader threads", [1, 4]),
    ],
)
def test_threads_that_were_tried_are_drawn(change: Change, name: str, settings: list[int]) -> None:
    found = sweep_of(replace(recorded("tiny_batch"), tried=(trial(change, 1.5),)))
    assert (found.of, found.name) == ("threads", name)
    assert [each.setting for each in found.points] == settings


def test_no_sweep_of_one_point_or_of_what_differs_in_something_else() -> None:
    same = trial(Change(workload={"data.threads": 1, "data.prefetch": 8}), 3.0)
    assert figures.sweeps(replace(recorded("tiny_batch"), tried=(same,)), [(same, None)]) == ()
    seen = replace(recorded("tiny_batch"), tried=(same,))
    assert figures.sweeps(seen, shown(seen)) == ()
    assert figures.sweeps(recorded("wrong_platform"), ()) == ()


def test_what_was_tried_on_top_of_others_is_no_point_of_a_sweep() -> None:
    on_top = replace(trial(Change(env={"NPROC": "1"}), 1.5), after=("etl",))
    seen = replace(recorded("tiny_batch"), tried=(on_top,))
    assert figures.sweeps(seen, shown(seen)) == ()
    (told,) = figures.tried(shown(seen))
    assert told.after == ("etl",)


def test_every_trial_is_told_even_one_that_could_not_be_run() -> None:
    failed = Tried(check="etl", fix=Fix(summary="", how="workers = 2"), failure="out of memory")
    seen = replace(recorded("tiny_batch"), tried=(*recorded("tiny_batch").tried, failed))
    found = figures.tried(shown(seen))
    assert len(found) == len(seen.tried)
    assert (found[-1].gain, found[-1].failure) == (None, "out of memory")


def test_memory_is_drawn_from_two_samples_on() -> None:
    seen = recorded("memory_leak")
    assert seen.memory is not None
    found = figures.memory(seen)
    assert found is not None and found.samples == seen.memory.samples
    one = replace(seen, memory=replace(seen.memory, samples=seen.memory.samples[:1]))
    assert figures.memory(one) is None
    assert figures.memory(recorded("wrong_platform")) is None


def test_the_shares_of_all_layers_make_the_forward_pass() -> None:
    found = figures.layers(recorded("large_kernel"))
    assert sum(each.share for each in found) == pytest.approx(1.0)
    assert found[0].name == "convolution 11×11, 32 to 64"
    assert found[0].place == "reference/models.py:82"
    assert figures.layers(recorded("wrong_platform")) == ()


def test_a_layer_that_is_computed_again_and_again_says_so() -> None:
    program = recorded("large_kernel").program
    assert program is not None
    layer: Layer = replace(program.layers[-1], kind="product", kernel=(), executed=5)
    assert figures.name_of(layer) == f"product {layer.inputs} to {layer.outputs}, 5 times"


def test_lines_are_those_that_a_finding_names() -> None:
    named, other = (
        SourceLines(
            place=f"my/train.py:{n}", file="/my/train.py", line=n, first_line=n, lines=("",)
        )
        for n in (7, 9)
    )
    seen = replace(recorded("healthy"), sources=(named, other))
    finding = Finding(
        check="gc",
        rank=1,
        summary="",
        evidence=(Evidence("collections", 3, "", "my/train.py:7"),),
        fix=Fix(summary="", how=""),
        gain=None,
    )
    assert figures.sources(seen, [finding]) == (named,)
    assert figures.sources(seen, [replace(finding, summary="at my/train.py:9")]) == (named, other)
    assert figures.sources(seen, []) == ()
