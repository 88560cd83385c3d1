"""Answers perfdoctor, which times the program in turn with its replayed step, what a step takes."""

from pathlib import Path

from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.protocol import TIMED, TURN


class Turns:
    """The turns of one program, in their order."""

    def __init__(self, folder: Path, step: StepWatch) -> None:
        """`folder`: where perfdoctor asks for them."""
        self._folder, self._step = folder, step
        self._next = 1

    def answer(self) -> None:
        """Time some steps, if that is asked for; written beside the answer and renamed, so that no
        reader sees half of it.
        """
        if not (self._folder / TURN.format(self._next)).exists():
            return
        taken_ms = self._step.takes_ms()
        answer = self._folder / TIMED.format(self._next)
        beside = answer.with_suffix(".part")
        beside.write_text("" if taken_ms is None else str(taken_ms))
        beside.rename(answer)
        self._next += 1
