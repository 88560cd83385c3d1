import gc
import sys
import threading
import weakref

import pytest

from perfdoctor.injection import calls
from perfdoctor.observe.agent import calls as agent_calls
from perfdoctor.observe.agent import capture, timing
from perfdoctor.observe.agent.stacks import (
    DEPTH,
    MOST_OTHERS,
    SWITCH_S,
    StackSampler,
    prompt_switches,
)


def deep(levels: int, sampler: StackSampler) -> None:
    if levels:
        deep(levels - 1, sampler)
    else:
        sampler.sample()


def functions(sampler: StackSampler, number: int) -> list[str]:
    return [function for _, _, function in sampler.stacks()[number]]


def test_a_stack_begins_with_its_innermost_frame() -> None:
    sampler = StackSampler()
    deep(1, sampler)
    assert functions(sampler, 0)[:4] == [
        "StackSampler.sample",
        "deep",
        "deep",
        "test_a_stack_begins_with_its_innermost_frame",
    ]


def test_a_frame_tells_its_file_and_line() -> None:
    sampler = StackSampler()
    sampler.sample()
    file, line, _ = sampler.stacks()[0][1]
    assert file == __file__
    assert line > 0


def test_equal_stacks_are_kept_once() -> None:
    sampler = StackSampler()
    for _ in range(3):
        sampler.sample()
    assert [number for _, number in sampler.samples] == [0, 0, 0]
    assert len(sampler.stacks()) == 1


def test_another_line_is_another_stack() -> None:
    sampler = StackSampler()
    sampler.sample()
    sampler.sample()
    assert [number for _, number in sampler.samples] == [0, 1]
    assert len(sampler.stacks()) == 2


def test_instants_do_not_go_back() -> None:
    sampler = StackSampler()
    for _ in range(20):
        sampler.sample()
    instants = [instant for instant, _ in sampler.samples]
    assert instants == sorted(instants)


def test_deep_stacks_lose_their_outermost_frames() -> None:
    sampler = StackSampler()
    deep(2 * DEPTH, sampler)
    assert functions(sampler, 0) == ["StackSampler.sample", *["deep"] * (DEPTH - 1)]


def test_another_thread_samples_the_main_thread() -> None:
    sampler = StackSampler()
    thread = threading.Thread(target=sampler.sample)
    thread.start()
    thread.join()
    assert "test_another_thread_samples_the_main_thread" in functions(sampler, 0)
    assert "StackSampler.sample" not in functions(sampler, 0)


def test_threads_switch_promptly_in_the_window_only() -> None:
    usual_s = sys.getswitchinterval()
    with prompt_switches():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == usual_s


def test_an_interval_that_the_program_sets_meanwhile_stays() -> None:
    usual_s = sys.getswitchinterval()
    try:
        with prompt_switches():
            sys.setswitchinterval(0.02)
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(usual_s)


def test_frames_of_our_own_are_left_out() -> None:
    sampler = StackSampler()
    exec(compile("sample()", calls.__file__, "exec"), {"sample": sampler.sample})
    names = functions(sampler, 0)
    assert names[:2] == ["StackSampler.sample", "test_frames_of_our_own_are_left_out"]


def test_so_are_those_of_who_makes_the_calls() -> None:
    assert {
        agent_calls.__file__,
        timing.__file__,
        capture.__file__,
        calls.__file__,
    } <= calls.OWN_FILES


def parked(stop: threading.Event) -> None:
    stop.wait()


def in_threads(*names: str) -> StackSampler:
    """A sampler that samples twice while threads with these names wait."""
    stop, sampler = threading.Event(), StackSampler()
    threads = [threading.Thread(target=parked, args=(stop,), name=name) for name in names]
    for thread in threads:
        thread.start()
    sampler.sample()
    sampler.sample()
    stop.set()
    for thread in threads:
        thread.join()
    sampler.sample()
    return sampler


def test_threads_beside_the_main_one_are_sampled_while_they_live() -> None:
    found = {each.name: each for each in in_threads("loader").others()}["loader"]
    assert len(found.samples) == 2
    _, number = found.samples[-1]
    assert "parked" in [function for _, _, function in found.stacks[number]]


def test_the_observers_own_threads_are_not_sampled() -> None:
    names = [each.name for each in in_threads("perfdoctor", "perfdoctor-2", "loader").others()]
    assert "loader" in names
    assert not any(name.startswith("perfdoctor") for name in names)


def test_of_many_threads_a_few_are_sampled() -> None:
    sampler = in_threads(*(f"loader {n}" for n in range(3 * MOST_OTHERS)))
    assert len(sampler.others()) == MOST_OTHERS


def test_who_samples_is_not_sampled() -> None:
    sampler = StackSampler()
    thread = threading.Thread(target=sampler.sample, name="sampler")
    thread.start()
    thread.join()
    assert "sampler" not in [each.name for each in sampler.others()]


class Held:
    """What a frame holds."""


def test_what_other_frames_hold_is_let_go_without_the_collector() -> None:
    inside, over, held = threading.Event(), threading.Event(), list[weakref.ref[Held]]()

    def work() -> None:
        mine = Held()
        held.append(weakref.ref(mine))
        inside.set()
        over.wait(60)

    thread = threading.Thread(target=work)
    gc.disable()
    try:
        thread.start()
        inside.wait(60)
        StackSampler().sample()
        over.set()
        thread.join()
        assert held[0]() is None
    finally:
        gc.enable()
