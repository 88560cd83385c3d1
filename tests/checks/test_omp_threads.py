from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.schema.calls import Restless, StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Pool, Threads
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor.schema.workload import Data
from perfdoctor_checks import competing_processes, omp_threads
from tests.calls import call_of
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

BLAS = Pool(library="blas: libopenblas.so", threads=2)
HEALTHY = Threads(
    by_name={"python": 15, "tf_XLAEigen": 2},
    pools=(BLAS,),
    children=0,
    child_threads=0,
    ran=5,
    forced_switches=280.0,
)
GPU = Backend(platform="gpu", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)


def running(
    environment: dict[str, str] | None = None, cores: float = 2.0, **threads: Any
) -> Observation:
    """The healthy run on two cores, as if it had these threads."""
    seen = recorded("healthy")
    host = replace(seen.host, usable_cores=cores, affinity_cores=2)
    threads_ = replace(HEALTHY, **threads)
    return replace(seen, host=host, threads=threads_, environment=environment or {})


def with_workers(count: int, cores: float = 2.0) -> Observation:
    """The healthy run, as if it had so many data workers."""
    seen = running(cores=cores, children=count, child_threads=count)
    assert seen.target.workload is not None
    workload = replace(seen.target.workload, data=Data(workers=count))
    return replace(seen, target=replace(seen.target, workload=workload))


def test_is_silent_on_idle_pools_of_the_usual_size() -> None:
    outcome = omp_threads.check(running())
    assert (outcome.kind, outcome.summary) == ("ok", "2 threads of XLA for 2 cores")


def test_finds_a_pool_of_xla_larger_than_the_machine() -> None:
    seen = running({"NPROC": "32", "OMP_NUM_THREADS": "2"}, by_name={"tf_XLAEigen": 32})
    outcome = omp_threads.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.summary == "XLA computes with 32 threads on 2 cores (NPROC=32)"
    change = outcome.fixes[0].change
    assert change is not None and change.env == {"NPROC": None}


def test_the_variable_does_where_threads_have_no_names() -> None:
    assert omp_threads.check(running({"NPROC": "32"}, by_name={})).kind == "hint"
    assert omp_threads.check(running({"NPROC": "many"}, by_name={})).kind == "ok"


@pytest.mark.parametrize("pools", [{}, {"tf_XLAEigen": 1}])
def test_fewer_threads_of_xla_than_cores_are_tried_too(pools: dict[str, int]) -> None:
    outcome = omp_threads.check(running({"NPROC": "1"}, by_name=pools))
    assert outcome.kind == "hint"
    assert outcome.summary == "XLA computes with 1 thread on 2 cores (NPROC=1)"
    assert outcome.fixes[0].change == Change(env={"NPROC": None})
    assert omp_threads.check(running({}, by_name={"tf_XLAEigen": 1})).kind == "ok"


def test_the_pool_counts_and_not_the_variable() -> None:
    assert omp_threads.check(running({"NPROC": "32"})).kind == "ok"
    assert omp_threads.check(running({"OMP_NUM_THREADS": "32"})).kind == "ok"


def test_a_quota_below_the_cores_wants_nproc() -> None:
    seen = running(cores=1.0, by_name={"tf_XLAEigen": 2})
    outcome = omp_threads.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == "export NPROC=1"
    assert omp_threads.check(running(cores=1.5, by_name={"tf_XLAEigen": 2})).kind == "ok"


def test_pools_of_other_backends_sleep() -> None:
    seen = running({"NPROC": "32"}, by_name={"tf_XLAEigen": 32})
    assert omp_threads.check(replace(seen, backend=GPU)).kind == "ok"


def test_each_of_several_cpu_devices_has_threads() -> None:
    devices = tuple(Device(id=n, platform="cpu", kind="cpu") for n in range(8))
    backend = Backend(platform="cpu", devices=devices, start_s=1.0)
    seen = replace(running(by_name={"tf_XLAEigen": 8}), backend=backend)
    assert omp_threads.check(seen).kind == "ok"


@pytest.mark.parametrize(("workers", "kind"), [(0, "ok"), (2, "ok"), (3, "hint"), (64, "hint")])
def test_more_data_workers_than_cores_are_a_hint(workers: int, kind: str) -> None:
    seen = with_workers(workers)
    outcome = omp_threads.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert_sound(outcome, seen)
        assert outcome.fixes[0].how == "[data] workers = 2"


@pytest.mark.parametrize("cores", [0.5, 1.5, 64.0, 300.0])
def test_fixes_are_valid_on_machines_of_any_size(cores: float) -> None:
    seen = with_workers(256, cores)
    outcome = omp_threads.check(seen)
    assert outcome.kind == "ok" or outcome.fixes
    if outcome.kind == "hint":
        assert_sound(outcome, seen)


def test_blas_in_every_worker_is_a_hint_where_its_threads_run() -> None:
    busy: dict[str, Any] = {"children": 4, "child_threads": 8, "forced_switches": 500.0}
    seen = running({"OPENBLAS_NUM_THREADS": "2"}, **busy)
    outcome = omp_threads.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"
    assert omp_threads.check(running(**busy | {"forced_switches": 399.0})).kind == "ok"
    assert omp_threads.check(running(**busy | {"child_threads": 7})).kind == "ok"
    assert omp_threads.check(running(**busy | {"children": 3})).kind == "ok"
    assert omp_threads.check(running({"OMP_NUM_THREADS": "1"}, **busy)).kind == "ok"


def test_blas_in_the_training_itself_is_a_hint_where_its_threads_run() -> None:
    large = (replace(BLAS, threads=16),)
    seen = running(pools=large, ran=18, forced_switches=500.0)
    assert_sound(omp_threads.check(seen), seen)
    assert omp_threads.check(running(pools=large, ran=9, forced_switches=500.0)).kind == "ok"


def test_the_evidence_names_pools_and_variables() -> None:
    facts = {fact.name: fact.value for fact in omp_threads.check(running({"NPROC": "2"})).evidence}
    assert facts["XLA's threads"] == 2 and facts["NPROC"] == "2"
    assert facts["blas: libopenblas.so"] == 2


def test_nothing_known_of_threads_is_no_finding() -> None:
    seen = running(by_name={}, pools=(), ran=0, forced_switches=0.0)
    assert omp_threads.check(replace(seen, backend=None)).kind == "ok"


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("omp_threads")
    outcome = omp_threads.check(seen)
    assert_sound(outcome, seen)
    change = outcome.fixes[0].change
    assert change is not None and change.env == {"NPROC": None}


def pinned(quota: float | None = None) -> Observation:
    """A script that may run on one of two cores."""
    seen = running(cores=1.0)
    host = replace(seen.host, affinity_cores=1, logical_cores=2, quota_cores=quota)
    target = replace(seen.target, kind="script", workload=None)
    return replace(seen, host=host, target=target)


def test_cores_that_an_affinity_keeps_away_are_tried() -> None:
    seen = pinned()
    outcome = omp_threads.check(seen)
    assert_sound(outcome, seen)
    assert "may run on 1 of this machine's 2 cores" in outcome.summary
    change = outcome.fixes[0].change
    assert change is not None and change.cores == (0, 1)


def test_a_quota_gives_no_more_cores_whatever_the_affinity() -> None:
    assert "may run on" not in omp_threads.check(pinned(quota=1.0)).summary
    assert "may run on" not in omp_threads.check(replace(pinned(), backend=GPU)).summary


def test_threads_that_all_call_blas_are_a_hint() -> None:
    """A pool of workers in the training itself, each of which wants BLAS's threads."""
    seen = running(ran=37, forced_switches=600.0)
    outcome = omp_threads.check(seen)
    assert outcome.kind == "hint"
    assert "has 2 threads in the training; 34 of them ran on 2 cores" in outcome.summary
    assert seen.steps is not None
    serving = replace(seen, steps=replace(seen.steps, threads=32))  # they call the step, not BLAS
    assert omp_threads.check(serving).kind == "ok"
    single = (replace(BLAS, threads=1),)
    assert omp_threads.check(running(pools=single, ran=37, forced_switches=600.0)).kind == "ok"


def beside(
    count: int,
    etl_ms: float = 0.0,
    *,
    is_process: bool = False,
    cores: float = 2.0,
    holds: bool = False,
) -> Observation:
    """The healthy run, as if so many threads never rested beside a step of 10 ms, of which it waits
    half for something.
    """
    seen = running(cores=cores)
    assert seen.steps is not None
    restless = tuple(
        Restless(
            name=f"Thread-{n} (work)", is_process=is_process, cpu_ms=3.0, holds_interpreter=holds
        )
        for n in range(1, count + 1)
    )
    call = call_of(before_ms=5.0)
    calls = StepCalls(calls=(call,), time_ms=10.0, steps=50, restless=restless)
    return replace(seen, calls=calls, steps=replace(seen.steps, time_ms=10.0, etl_ms=etl_ms))


def test_threads_that_never_rest_are_a_hint_that_a_replay_proves() -> None:
    seen = beside(4)
    outcome = omp_threads.check(seen)
    assert_sound(outcome, seen)
    names = "Thread-1 (work), Thread-2 (work), Thread-3 (work), …"
    doing = "work on while the step stands still, on 2 cores"
    assert outcome.summary == f"4 threads of the program {doing}: {names}"
    change = outcome.fixes[0].change
    assert change is not None and change.step == {"restless": 0} and change.is_bound
    assert "2 processes of the program" in omp_threads.check(beside(2, is_process=True)).summary


def test_a_thread_that_holds_the_interpreter_needs_no_more_of_the_cores_than_one() -> None:
    outcome = omp_threads.check(beside(1, cores=8.0, holds=True))
    assert outcome.kind == "hint" and "hold Python's interpreter" in outcome.summary


def test_threads_that_leave_cores_are_none_and_neither_are_those_that_load() -> None:
    assert omp_threads.check(beside(1)).kind == "ok"
    assert omp_threads.check(beside(4, cores=8.0)).kind == "ok"
    assert omp_threads.check(beside(4, etl_ms=2.0)).kind == "ok"
    assert omp_threads.check(replace(beside(4), steps=None)).kind == "ok"


def test_other_programs_are_no_threads_of_this_one() -> None:
    seen = beside(4, is_process=True)
    assert seen.calls is not None
    others = tuple(replace(each, is_program=True) for each in seen.calls.restless)
    seen = replace(seen, calls=replace(seen.calls, restless=others))
    assert omp_threads.check(seen).kind == "ok"
    outcome = competing_processes.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary.startswith(
        "4 other programs that the training has started work on while the step stands still, on 2"
    )
    change = outcome.fixes[0].change
    assert change is not None and change.step == {"restless": 0} and change.is_bound
