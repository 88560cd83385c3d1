"""Acting between two jitted calls of a program."""

import threading

import jax
import pytest

from perfdoctor.injection.calls import Hearing, wrapped
from perfdoctor.observe.agent import turns
from perfdoctor.observe.agent.turns import between_calls

LIMIT_S = 30.0


def test_the_action_is_done_in_the_programs_thread_before_its_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", LIMIT_S)
    hearing, ended = Hearing(), threading.Event()
    step = wrapped(jax.jit(lambda x: x + 1), hearing)

    def program() -> None:
        while not ended.is_set():
            assert step(1) == 2

    thread = threading.Thread(target=program, daemon=True)
    thread.start()
    assert between_calls(hearing, threading.current_thread) is thread
    assert hearing.hear is None
    ended.set()
    thread.join(LIMIT_S)


def test_the_action_is_done_by_the_observer_if_no_call_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", 0.01)
    assert between_calls(Hearing(), threading.current_thread) is threading.current_thread()


def test_what_the_action_raises_is_not_raised_in_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", LIMIT_S)
    hearing, answers = Hearing(), list[int]()
    step = wrapped(jax.jit(lambda x: x + 1), hearing)
    called = threading.Event()

    def program() -> None:
        while hearing.hear is None:
            called.wait(0.001)
        answers.append(int(step(1)))

    thread = threading.Thread(target=program, daemon=True)
    thread.start()
    with pytest.raises(ZeroDivisionError):
        between_calls(hearing, lambda: 1 // 0)
    thread.join(LIMIT_S)
    assert answers == [2]
