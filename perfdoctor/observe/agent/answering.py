"""Answers perfdoctor, which times the program in turn with its replayed step, what a step takes."""

import threading
from pathlib import Path

from perfdoctor.injection.bootstrap import stopped
from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.protocol import LEARNT, TIMED, TURN, TURNS_OVER

LOOK_EVERY_S = 0.05
"""Seconds between two looks at whether perfdoctor has asked or answered."""


def answer_turns(folder: Path, step: StepWatch, ended: threading.Event) -> None:
    """Tell that the step is known, and time some steps for each turn, until they are over."""
    (folder / LEARNT).touch()
    number = 1
    while not ended.wait(LOOK_EVERY_S) and not stopped(folder):
        if (folder / TURN.format(number)).exists():
            answer(folder / TIMED.format(number), step.takes_ms())
            number += 1
        elif (folder / TURNS_OVER).exists():
            return


def answer(file: Path, taken_ms: float | None) -> None:
    """Written beside it and renamed, so that no reader sees half of it."""
    beside = file.with_suffix(".part")
    beside.write_text("" if taken_ms is None else str(taken_ms))
    beside.rename(file)
