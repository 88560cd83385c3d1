"""What a captured step takes in a replay process: alone, and beside what the host does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from perfdoctor.replay.conditions import Host, alone
from perfdoctor.replay.fidelity import undisturbed_ms
from perfdoctor.replay.in_turn import beside_then_ms
from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.slices import FIRST_ROUNDS, SLICE_S, a_step_ms, slice_s
from perfdoctor.schema.capture import Conditions


@dataclass(frozen=True)
class Emulation:
    """The process of the unchanged step, until an instant of time.monotonic(); WorkerEnded.

    `turns`: of turns that it took with the program, the logarithm of its step's time alone over the
    program's. With them it is told how long a step takes on the machine as it was for the program;
    without, as it is now.
    """

    process: ReplayProcess
    host: Host
    observed_ms: float
    turns: Sequence[float]
    until: float

    def alone_ms(self, program: str) -> float:
        """The step alone."""
        if self.turns:
            return (self.observed_ms - self.host.rare_ms) * math.exp(median(self.turns))
        return self._step_ms(alone(program), FIRST_ROUNDS)

    def beside_host_ms(self, alone_ms: float) -> float:
        """The step beside what the host does, and what is done now and then."""
        as_observed = self.host.as_observed
        run = partial(self.process.run, as_observed)
        run_alone = partial(self.process.run, alone(as_observed.program))

        def measured(rounds: int) -> float:
            if not self.turns:
                return self.host.rare_ms + self._step_ms(as_observed, rounds)
            host_ms = as_observed.own_ms
            then_ms = beside_then_ms(run, run_alone, host_ms, alone_ms, rounds, self.until)
            return self.host.rare_ms + then_ms

        again_later = not self.turns
        return undisturbed_ms(measured, self.observed_ms, self.until, again_later=again_later)

    def _step_ms(self, conditions: Conditions, rounds: int) -> float:
        run = partial(self.process.run, conditions)
        seconds = slice_s(run(SLICE_S, self.until))
        return median(a_step_ms(run(seconds, self.until)) for _ in range(rounds))
