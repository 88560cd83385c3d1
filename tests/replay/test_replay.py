"""What fixes gain on a captured step."""

import dataclasses
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import psutil
import pytest

from perfdoctor.doctor import replayed
from perfdoctor.observe.agent.eager import Candidate
from perfdoctor.observe.agent.outline import Arguments, outlined
from perfdoctor.observe.agent.whole import save_first_of
from perfdoctor.observe.in_turn import Running
from perfdoctor.processes import ProcessGroups
from perfdoctor.replay import fidelity, slices
from perfdoctor.replay import replay as module
from perfdoctor.replay.process import Quiet, ReplayProcess
from perfdoctor.replay.replay import Replay, way_of
from perfdoctor.schema.calls import Alone, Eager, Restless, StepCalls
from perfdoctor.schema.capture import AS_IT_IS, MANIFEST, WHOLE_TOLD, Capture
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.trials.live import OutOfTime, WorkerEnded
from tests.calls import call_of
from tests.replay.captured import Captured, captured, training
from tests.trials.programs import soon

SAVED = Path(__file__).parents[1] / "observations" / "healthy.json"
WORK_MS = 5.0
"""Of the host before each step, all of which is collecting."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return captured(training, tmp_path_factory.mktemp("training"))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a tenth of a second at most."""
    for each in (module, slices):
        monkeypatch.setattr(each, "SLICE_S", 0.05)


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    """Of which nothing is left when the test is over."""
    with ProcessGroups() as groups:
        yield groups
        assert (groups._children, groups._folders) == ([], [])


def observed(time_ms: float = WORK_MS) -> Observation:
    """Of a step before which the host collects."""
    saved = msgspec.json.decode(SAVED.read_bytes(), type=Observation)
    call = call_of(before_ms=WORK_MS, before_cpu_ms=WORK_MS, inside_ms=0.1, inside_cpu_ms=0.1)
    calls = StepCalls(calls=(call,), time_ms=time_ms, steps=100, collecting_ms=WORK_MS)
    return msgspec.structs.replace(saved, calls=calls, steps=None)


def replay_of(groups: ProcessGroups, folder: Path) -> Replay:
    return Replay(groups, dict(os.environ), folder, lambda text: None)


def test_a_step_is_told_alone_and_beside_its_host(groups: ProcessGroups, trained: Captured) -> None:
    with replay_of(groups, trained.folder) as replay:
        alone = replay.told(observed(), soon())
    assert alone.emulated_ms is not None
    assert 0 < alone.alone_ms < WORK_MS <= alone.emulated_ms
    assert (alone.observed_ms, alone.made) == (WORK_MS, ())


class Beside(Running):
    """A program whose steps always take a hundred times what its captured one takes at most."""

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        yield

    def step_ms(self) -> float | None:
        return 100.0


def test_a_step_that_took_turns_with_the_program_is_told_by_them(
    groups: ProcessGroups, trained: Captured
) -> None:
    with replay_of(groups, trained.folder) as replay:
        replay.in_turn(Beside(psutil.Process(), trained.folder, soon()))
        assert len(groups._children) == 1
        alone = replay.told(observed(), soon())
        assert len(groups._children) == 1
    assert 0 < alone.alone_ms < WORK_MS / 10


class Fast(Beside):
    """A program whose steps take less than its captured one can by itself."""

    def step_ms(self) -> float | None:
        return 1e-4


def test_disturbed_turns_are_forgotten(groups: ProcessGroups, trained: Captured) -> None:
    with replay_of(groups, trained.folder) as replay:
        replay.in_turn(Fast(psutil.Process(), trained.folder, soon()))
        assert not groups._children  # what slowed its process may be the process
        alone = replay.told(observed(), soon())
    assert 0 < alone.alone_ms < WORK_MS


def test_turns_tell_nothing_of_a_step_that_was_saved_after_them(
    groups: ProcessGroups, trained: Captured, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "captured")
    saved = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)
    with replay_of(groups, folder) as replay:
        replay.in_turn(Beside(psutil.Process(), folder, soon()))
        (of_the_turns,) = groups._children
        other = msgspec.structs.replace(saved, reuses_memory=not saved.reuses_memory)
        (folder / MANIFEST).write_bytes(msgspec.json.encode(other))
        replay.told(observed(), soon())
        assert of_the_turns not in groups._children
        assert not replay._turns


def test_where_no_step_was_saved_nothing_takes_turns(groups: ProcessGroups, tmp_path: Path) -> None:
    with replay_of(groups, tmp_path) as replay:
        replay.in_turn(Beside(psutil.Process(), tmp_path, soon()))
        assert not groups._children


def test_a_step_that_can_not_take_turns_is_told_without(
    groups: ProcessGroups, trained: Captured
) -> None:
    ended = Beside(psutil.Process(), trained.folder, until=0.0)
    with replay_of(groups, trained.folder) as replay:
        replay.in_turn(ended)
        alone = replay.told(observed(), soon())
    assert alone.emulated_ms is not None and alone.emulated_ms >= WORK_MS


def test_what_the_host_does_not_do_is_gained(groups: ProcessGroups, trained: Captured) -> None:
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        ratios = replay.play(Change(step={"collecting": 0}), soon())
        assert len(groups._children) == 1
    assert min(ratios) > math.log(1.5)


def test_what_is_measured_anew_runs_in_another_process(
    groups: ProcessGroups, trained: Captured
) -> None:
    resting = Change(step={"collecting": 0})
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        (first,) = groups._children
        replay.renew()
        assert not groups._children
        assert min(replay.play(resting, soon())) > math.log(1.5)
        (second,) = groups._children
    assert first.pid != second.pid


def test_a_change_of_the_environment_needs_another_process(
    groups: ProcessGroups, trained: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Change] = []

    class Noted(ReplayProcess):
        def __init__(
            self,
            groups: ProcessGroups,
            env: Mapping[str, str],
            folder: Path,
            capture: Capture,
            change: Change,
            quiet: Quiet,
        ) -> None:
            super().__init__(groups, env, folder, capture, change, quiet)
            seen.append(change)

    monkeypatch.setattr(module, "ReplayProcess", Noted)
    elsewhere = Change(env={"TF_TEST_CHANGED": "1"})
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        ratios = replay.play(elsewhere, soon())
        assert len(groups._children) == 1  # the other one is gone
    assert seen == [Change(), elsewhere]
    assert abs(sorted(ratios)[len(ratios) // 2]) < math.log(1.5)


def test_a_program_that_was_not_exported_can_not_be_replayed(
    groups: ProcessGroups, trained: Captured, tmp_path: Path
) -> None:
    for file in filter(Path.is_file, trained.folder.iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    why = {"float32": "TypeError: no such type"}
    then = msgspec.structs.replace(trained.capture, failures=why)
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(then))
    with replay_of(groups, tmp_path) as replay:
        replay.told(observed(), soon())
        assert not replay.can(Change(step={"program": "float32"}))


def test_a_change_that_breaks_the_step_leaves_the_others(
    groups: ProcessGroups, trained: Captured
) -> None:
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        with pytest.raises(WorkerEnded, match=r"no_such_flag|status -6"):
            replay.play(Change(env={"XLA_FLAGS": "--no_such_flag=1"}), soon())
        assert len(replay.play(Change(step={"collecting": 0}), soon())) >= 5


def test_one_that_crashed_is_started_again(groups: ProcessGroups, trained: Captured) -> None:
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        groups._children[0].kill()
        with pytest.raises(WorkerEnded, match="killed"):
            replay.play(Change(step={"collecting": 0}), soon())
        assert len(replay.play(Change(step={"collecting": 0}), soon())) >= 5


def test_when_the_budget_ends_nothing_more_is_told(
    groups: ProcessGroups, trained: Captured
) -> None:
    with replay_of(groups, trained.folder) as replay, pytest.raises(OutOfTime):
        replay.told(observed(), time.monotonic())


def test_without_a_capture_the_reason_is_told(groups: ProcessGroups, tmp_path: Path) -> None:
    missing = msgspec.structs.replace(observed(), not_measured={"calls": "too few calls"})
    with replay_of(groups, tmp_path) as replay, pytest.raises(WorkerEnded, match="too few calls"):
        replay.told(missing, soon())


def test_a_step_that_calls_back_can_not_be_replayed(groups: ProcessGroups, tmp_path: Path) -> None:
    then = Capture(calls=(), settings={}, env={}, failures={AS_IT_IS: "it calls back"})
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(then))
    with replay_of(groups, tmp_path) as replay, pytest.raises(WorkerEnded, match="it calls back"):
        replay.told(observed(), soon())


def test_an_unfaithful_emulation_is_told_and_gives_no_gains(
    groups: ProcessGroups, trained: Captured
) -> None:
    with replay_of(groups, trained.folder) as replay:
        found, ways = replayed(observed(time_ms=1000.0), replay, soon())
    assert ways == []
    assert found.alone is not None and found.alone.alone_ms < WORK_MS
    assert "something that the replay lacks matters" in found.not_measured["alone"]


def test_a_faithful_emulation_measures_fixes(
    groups: ProcessGroups, trained: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside other tests two emulations may differ by more than two of one step should."""
    monkeypatch.setattr(fidelity, "FAITHFUL", 3.0)
    with replay_of(groups, trained.folder) as replay:
        emulated_ms = replay.told(observed(), soon()).emulated_ms
    assert emulated_ms is not None
    with replay_of(groups, trained.folder) as replay:
        found, [way] = replayed(observed(time_ms=emulated_ms * 1.02), replay, soon())
        assert found.alone is not None
        assert way.basis == "replayed" and "alone" not in found.not_measured
        assert way.emulation_error == found.alone.emulation_error
        assert way.can(Change(step={"collecting": 0}))


def test_a_step_without_those_that_never_rest_is_compared_with_the_observed_one(
    groups: ProcessGroups, trained: Captured
) -> None:
    """However little the replay is like it."""
    restless = Restless(name="python 7", is_process=True, cpu_ms=1.0, cores=1.0)
    seen = observed(time_ms=1000.0)
    steps = msgspec.json.decode(SAVED.read_bytes(), type=Observation).steps
    assert seen.calls is not None and steps is not None
    calls = msgspec.structs.replace(seen.calls, restless=(restless,))
    steps = msgspec.structs.replace(steps, time_ms=1000.0, etl_ms=0.0)
    seen = msgspec.structs.replace(seen, calls=calls, steps=steps)
    resting = Change(step={"restless": 0})
    with replay_of(groups, trained.folder) as replay:
        _, [way] = replayed(seen, replay, soon())
        assert way.can(resting) and not way.can(Change(step={"collecting": 0}))
        assert (way.basis, way.emulation_error) == ("estimated", None)
        ratios = way.play(resting, soon())
    assert median(ratios) > math.log(100)  # its own emulated step would gain next to nothing


def test_what_can_not_be_replayed_at_all_leaves_the_observation(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    with replay_of(groups, tmp_path) as replay:
        found, ways = replayed(observed(), replay, soon())
    assert (found.alone, ways) == (None, [])
    assert found.not_measured["alone"] == "no step was saved"


@pytest.mark.parametrize(
    ("emulated_ms", "basis"),
    [
        (10.5, "replayed"),
        (None, "replayed"),
        (12.0, "estimated"),
        (19.9, "estimated"),
        (20.1, None),
    ],
)
def test_the_further_off_a_replay_is_the_less_it_says(
    groups: ProcessGroups, tmp_path: Path, emulated_ms: float | None, basis: str | None
) -> None:
    with replay_of(groups, tmp_path) as replay:
        way = way_of(replay, Alone(alone_ms=1.0, emulated_ms=emulated_ms, observed_ms=10.0))
    assert (way.basis if way else None) == basis


CHANGES = [
    (Change(step={"waits": 0.5}), True),
    (Change(step={"compiled": "once"}), False),
    (Change(step={"program": "float32"}), False),
    (Change(env={"OMP_NUM_THREADS": "1"}), True),
    (Change(settings={"jax_enable_x64": False}), True),
    (Change(cores=(0,)), True),
    (Change(folders=("JAX_COMPILATION_CACHE_DIR",), speeds_up="launch"), False),
    (Change(workload={"data.prefetch": 2}), False),
    (Change(workload={"data.prefetch": 2}, step={"loading": "thread"}), False),
    (Change(gc_freeze=True), False),
]
"""And whether they change something about the replayed step that can be made there."""


def test_what_changes_the_step_can_be_replayed(groups: ProcessGroups, trained: Captured) -> None:
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        for change, can in CHANGES:
            assert replay.can(change) == can, change


def test_a_larger_batch_may_take_no_longer_to_be_loaded(
    groups: ProcessGroups, trained: Captured
) -> None:
    larger = Change(step={"program": "batch-8-to-32"})
    with replay_of(groups, trained.folder) as replay:
        replay.told(observed(), soon())
        assert replay.at_most(larger) is None  # nothing was seen to be loaded
        replay._host = dataclasses.replace(replay._host, loading_share=0.5)
        assert replay.at_most(larger) == Change(step={"growing": 0, "program": "batch-8-to-32"})
        assert replay.at_most(Change(step={"collecting": 0})) is None


def test_what_is_done_now_and_then_is_spared_by_no_larger_batch(
    groups: ProcessGroups, trained: Captured
) -> None:
    larger = Change(step={"program": "batch-8-to-32"})
    with replay_of(groups, trained.folder) as replay, ExitStack() as stack:
        replay.told(observed(), soon())
        replay._host = dataclasses.replace(replay._host, rare_ms=3.0)
        before = replay._side(Change(), replay._unchanged(), stack)
        after = replay._side(larger, before.process, stack)
    assert (before.examples, before.rare_ms) == (1.0, 3.0)
    assert (after.examples, after.rare_ms) == (4.0, 12.0)


def test_what_a_change_gains_on_top_of_another_one(
    groups: ProcessGroups, trained: Captured
) -> None:
    seen = observed()
    with replay_of(groups, trained.folder) as replay:
        replay.told(seen, soon())
        spared = Change(step={"collecting": 0})
        ratios = replay.after(spared)(spared, soon())  # alone, it gains over 1.5 times
        assert len(groups._children) == 1
    assert abs(sorted(ratios)[len(ratios) // 2]) < math.log(1.5)


def one_by_one(weights: Any, x: Any) -> Any:
    for _ in range(8):
        x = jnp.tanh(x @ weights)
    return weights - x.mean() * 1e-3


def saved_whole(folder: Path, call_ms: float, share: float) -> Observation:
    """Of a function that dispatches its operations, whose calls take so long."""
    eager = Eager(function="one_by_one", file="t.py", line=1, call_ms=call_ms, share=share)
    given = {"weights": jnp.ones((16, 16)), "x": jnp.ones((4, 16))}
    arguments = Arguments(one_by_one.__code__, globals(), (), outlined(jax, given))
    save_first_of([Candidate(eager, arguments)], jax, folder, {}, {}, nullcontext)
    told = msgspec.json.decode((folder / WHOLE_TOLD).read_bytes(), type=Eager)
    return msgspec.structs.replace(observed(), eager=told)


def test_a_function_as_one_program_is_measured_beside_the_rest(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    seen = saved_whole(tmp_path, call_ms=80.0, share=0.8)
    with replay_of(groups, tmp_path) as replay:
        found, [way, estimate] = replayed(seen, replay, soon())
        assert found.alone is not None and found.alone.observed_ms == 80.0
        change = Change(step={"jitted": "whole"})
        assert way.can(change) and not way.can(Change(step={"waits": 0.0}))
        assert way.basis == "replayed" and not estimate.can(change)
        ratios = way.play(change, soon())
    # of 100 ms a step the 20 that the host does besides are left, and a little; on a machine that
    # is busy, more
    assert all(each <= math.log(5.0) for each in ratios) and max(ratios) > 0


def test_what_a_jitted_call_takes_for_its_trees_is_left_too(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    seen = saved_whole(tmp_path, call_ms=80.0, share=0.8)
    assert seen.eager is not None
    of_trees = msgspec.structs.replace(seen.eager, trees_ms=30.0, call_waits=True)
    with replay_of(groups, tmp_path) as replay:
        _, [way, _] = replayed(msgspec.structs.replace(seen, eager=of_trees), replay, soon())
        ratios = way.play(Change(step={"jitted": "whole"}), soon())
    assert all(each <= math.log(2.0) for each in ratios)  # of 100 ms, 20 and 30 are left at least


def test_what_others_compute_is_left_when_a_function_becomes_one_program(
    groups: ProcessGroups, tmp_path: Path
) -> None:
    seen = saved_whole(tmp_path, call_ms=90.0, share=0.9)
    with replay_of(groups, tmp_path) as replay:
        _, [way, estimate] = replayed(seen, replay, soon())
        change = Change(step={"jitted": "whole", "others": 0.5})
        assert estimate.can(change) and not way.can(change)
        assert estimate.basis == "estimated"
        ratios = estimate.play(change, soon())
    assert all(0 < each <= math.log(2.0) for each in ratios)  # of 100 ms, 50 are left at least


def test_one_that_was_not_saved_is_not_measured(groups: ProcessGroups, tmp_path: Path) -> None:
    eager = Eager(function="f", file="t.py", line=1, call_ms=9.0, share=0.9, why_not="it prints")
    with replay_of(groups, tmp_path) as replay:
        assert replay.whole(msgspec.structs.replace(observed(), eager=eager)) == []
