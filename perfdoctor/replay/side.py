"""One of the two replayed steps that a trial compares."""

from dataclasses import dataclass

from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.slices import SLICE_S, a_step_ms, slice_s
from perfdoctor.schema.capture import Conditions


@dataclass(frozen=True)
class Side:
    """A step in a replay process, under some conditions."""

    process: ReplayProcess
    conditions: Conditions
    examples: float = 1.0
    """Examples of a step, in multiples of those of an unchanged one."""
    rare_ms: float = 0.0
    """What a step takes in the mean for what is done now and then."""
    times: float = 1.0
    """How many of its steps one of the program takes as long as."""

    def slice_s(self, until: float) -> float:
        """How long a slice is to be; WorkerEnded."""
        return slice_s(self.process.run(self.conditions, SLICE_S, until))

    def step_ms(self, seconds: float, until: float) -> float:
        """What a step takes, of a slice of so many seconds; WorkerEnded."""
        ran = self.process.run(self.conditions, seconds, until)
        return self.rare_ms + self.times * a_step_ms(ran)
