"""A program is ended by an interrupt, wherever that finds it."""

import subprocess
import sys

import pytest

LIMIT_S = 100.0
"""Generous: reached only where something is wrong."""
PROGRAM = """
import gc, sys, threading, time, weakref
from perfdoctor.observe.agent.ending import interrupt

class Held: pass

asked, over = threading.Event(), threading.Event()

def stop():
    asked.wait()
    time.sleep(0.1)
    interrupt(over.is_set)

def hold(*_):
    if not asked.is_set():
        asked.set()
        time.sleep({limit})

threading.Thread(target=stop, daemon=True).start()
try:
    {there}
    time.sleep({limit})
except KeyboardInterrupt:
    print("interrupted")
finally:
    over.set()
"""


@pytest.mark.parametrize(
    "there",
    [
        "hold()",
        "gc.callbacks.append(hold); gc.collect()",
        "held = Held(); mark = weakref.ref(held, hold); del held",
        "Held.__del__ = hold; Held()",
    ],
)
def test_an_interrupt_that_is_lost_comes_again(there: str) -> None:
    program = PROGRAM.format(there=there, limit=LIMIT_S)
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S / 2
    )
    assert (answer.stdout, answer.stderr) == ("interrupted\n", "")


def test_other_exceptions_that_nobody_gets_are_shown_as_ever() -> None:
    there = "Held.__del__ = lambda self: asked.set() or 1 / 0; held = Held(); del held"
    program = PROGRAM.format(there=there, limit=LIMIT_S)
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S / 2
    )
    assert answer.stdout == "interrupted\n"
    assert "ZeroDivisionError" in answer.stderr
