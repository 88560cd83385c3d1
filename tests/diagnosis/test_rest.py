"""The loop rests while something is timed, and goes on whatever happens."""

import threading

import jax
import pytest

from perfdoctor.diagnosis.rest import Rests
from perfdoctor.injection.calls import Function, Hearing


class Loop(threading.Thread):
    """Makes calls, as a hearing has it, until it is ended."""

    def __init__(self, hearing: Hearing) -> None:
        super().__init__(daemon=True)
        self.hearing, self.calls = hearing, 0
        self.over = threading.Event()
        self.function = Function(lambda x: x)

    def run(self) -> None:
        while not self.over.wait(0.001):
            hear = self.hearing.hear
            if hear is not None:
                hear(self.function, (1.0,), {})
            self.calls += 1


def test_no_call_is_made_in_the_block_and_all_go_on_after_it() -> None:
    hearing = Hearing()
    loop = Loop(hearing)
    loop.start()
    rests = Rests(jax, hearing, lambda: False)
    with rests.quiet():
        before = loop.calls
        assert not loop.over.wait(0.1)
        assert loop.calls == before
    assert hearing.hear is None
    while loop.calls <= before:
        loop.over.wait(0.01)
    assert rests.rested_s >= 0.1
    loop.over.set()
    loop.join()


def test_an_error_in_the_block_lets_the_loop_go_on() -> None:
    hearing = Hearing()
    loop = Loop(hearing)
    loop.start()
    with pytest.raises(OSError), Rests(jax, hearing, lambda: False).quiet():
        raise OSError
    assert hearing.hear is None
    loop.over.set()
    loop.join()


def test_a_loop_that_has_ended_is_not_waited_for() -> None:
    hearing = Hearing()
    with Rests(jax, hearing, lambda: True).quiet():
        assert hearing.hear is None
