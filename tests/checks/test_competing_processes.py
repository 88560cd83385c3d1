from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.surroundings import Backend, BusyProcess, Device, Gpu, GpuProcess
from perfdoctor_checks import competing_processes
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

COMPILER = BusyProcess(pid=4242, name="cc1plus", command="cc1plus -O3 model.cpp", cores=0.98)
GPU = Gpu(
    index=0,
    name="NVIDIA H100",
    memory_bytes=80 * 2**30,
    memory_used_bytes=40 * 2**30,
    utilisation_percent=97,
    driver="580.65",
    cuda_driver_version="13.0",
    processes=(GpuProcess(pid=7, name="other.py", memory_bytes=30 * 2**30),),
)
ON_GPU = Backend(platform="gpu", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)


def loaded(**load: Any) -> Observation:
    """The healthy run, with this beside it."""
    seen = recorded("healthy")
    assert seen.load is not None
    return replace(seen, load=replace(seen.load, **load))


def compiling() -> Observation:
    """A compiler on one of the two cores."""
    return loaded(own_cores=1.0, other_cores=1.0, others=(COMPILER,), lost_share=0.4)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_on_a_machine_of_its_own(name: str) -> None:
    assert competing_processes.check(recorded(name)).kind == "ok"


def test_finds_a_compiler_on_one_core() -> None:
    seen = compiling()
    outcome = competing_processes.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary == "others take 1.0 of 2 cores: cc1plus (4242) 1.0"
    assert outcome.gain is not None and outcome.gain.high == 2.0
    assert outcome.gain.speedup == pytest.approx(1 / 0.6)


def test_a_command_that_ended_at_once_is_no_competitor() -> None:
    seen = compiling()
    assert seen.load is not None
    for lasting, kind in ((0.0, "ok"), (1.0, "issue"), (None, "issue")):
        changed = replace(seen, load=replace(seen.load, lasting_cores=lasting))
        assert competing_processes.check(changed).kind == kind


def test_the_fix_names_the_process_and_is_left_to_the_user() -> None:
    fix = competing_processes.check(compiling()).fixes[0]
    assert "4242" in fix.how and "cc1plus -O3 model.cpp" in fix.how
    assert fix.change is None


def test_a_process_that_took_little_of_it_is_not_named() -> None:
    idler = replace(COMPILER, name="idler", cores=0.03)
    outcome = competing_processes.check(loaded(other_cores=0.5, others=(idler,)))
    assert outcome.kind == "issue" and outcome.summary == "others take 0.5 of 2 cores"
    assert "can't be seen from here" in outcome.fixes[0].how


def test_a_tenth_of_a_core_is_no_competitor_that_is_named() -> None:
    small = tuple(replace(COMPILER, pid=100 + n, name=f"helper{n}", cores=0.1) for n in range(5))
    outcome = competing_processes.check(loaded(other_cores=0.5, others=small))
    assert outcome.kind == "issue" and outcome.summary == "others take 0.5 of 2 cores"
    assert "the largest 0.1 cores" in outcome.fixes[0].how
    beside = (COMPILER, *small[:2])
    named = competing_processes.check(loaded(other_cores=1.2, others=beside))
    assert named.summary == "others take 1.2 of 2 cores: cc1plus (4242) 1.0"


def test_finds_the_hypervisor_giving_cores_away() -> None:
    seen = loaded(own_cores=1.0, steal_cores=1.0, other_cores=0.0, lost_share=0.0)
    outcome = competing_processes.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "the hypervisor gives 1.0 cores to others" in outcome.summary
    assert outcome.gain is not None and outcome.gain.speedup == pytest.approx(2.0)


def test_a_compiler_is_named_beside_a_hypervisor_that_takes_more() -> None:
    outcome = competing_processes.check(
        loaded(other_cores=1.0, steal_cores=1.5, others=(COMPILER,), lost_share=0.4)
    )
    assert "cc1plus (4242) 1.0; the hypervisor gives 1.5 cores" in outcome.summary
    assert "of its own" in outcome.fixes[0].summary


def test_others_on_cores_that_the_training_did_not_want_cost_nothing() -> None:
    gain = competing_processes.check(
        loaded(other_cores=1.0, others=(COMPILER,), lost_share=0.0)
    ).gain
    assert gain is not None and gain.speedup == 1.0


def test_threads_that_wait_for_each_other_are_not_blamed_on_others() -> None:
    gain = competing_processes.check(loaded(other_cores=0.2, lost_share=0.9)).gain
    assert gain is not None and gain.speedup == pytest.approx(1 / 0.9)


def test_without_schedstat_what_others_took_is_taken_for_lost() -> None:
    gain = competing_processes.check(loaded(other_cores=1.0, lost_share=None)).gain
    assert gain is not None and gain.speedup == pytest.approx(2.0)


def test_a_desktop_at_rest_is_no_finding() -> None:
    assert competing_processes.check(loaded(other_cores=0.09)).kind == "ok"
    assert competing_processes.check(loaded(other_cores=0.11)).kind == "issue"


def test_what_the_machine_does_not_tell_is_left_out() -> None:
    evidence = competing_processes.check(loaded(lost_share=None, pressure_share=None)).evidence
    names = [fact.name for fact in evidence]
    assert "CPU pressure" not in names and "load average" in names


def test_rivals_on_the_gpu_are_a_hint() -> None:
    seen = replace(recorded("healthy"), gpus=(GPU,), backend=ON_GPU)
    outcome = competing_processes.check(seen)
    assert outcome.kind == "hint" and "other.py (7)" in outcome.summary
    assert outcome.evidence


def test_rivals_on_a_gpu_that_the_training_does_not_use_are_none_of_it() -> None:
    assert competing_processes.check(replace(recorded("healthy"), gpus=(GPU,))).kind == "ok"
