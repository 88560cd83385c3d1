"""Observes a target once, to know what of it is to be timed."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from perfdoctor.bench.against import Contender
from perfdoctor.bench.launches import Side
from perfdoctor.observe.following import Within
from perfdoctor.observe.session import observe
from perfdoctor.processes import ProcessGroups
from perfdoctor.runner import runner_of
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Observation


@dataclass(frozen=True)
class Examine:
    """Observes a target once: what its step is, what it is made of."""

    groups: ProcessGroups
    output: int
    within_s: Within
    say: Callable[[str], None]

    def __call__(self, contender: Contender) -> tuple[Side, Observation]:
        """NothingMeasured if it makes no steps."""
        runner = runner_of(contender.target, self.groups, self.output, self.say, copied=False)
        launch = contender.launch(runner.launch)
        observation = observe(contender.target, launch, self.groups, self.within_s, self.say)
        runner.parts()  # a UsageError where there is none
        return side_of(launch, observation), observation


def compiling_s(observation: Observation) -> float:
    """How long an observed run compiled, all in all."""
    return sum(each.seconds for each in observation.compiles or ())


def program(observation: Observation) -> str | None:
    """The hash of the step's program."""
    return observation.executable.hlo if observation.executable else None


def why_nothing(observation: Observation) -> str:
    """Why there are no steps to time, in a sentence."""
    seen = observation.not_measured.get("steps", "none was seen")
    why = observation.failure.message if observation.failure is not None else seen
    return f"no training step was measured: {why}"


def side_of(launch: Launch, observation: Observation) -> Side:
    """What to time of a target, as it was observed; NothingMeasured if it made no steps."""
    steps = observation.steps
    if steps is None:
        raise NothingMeasured(why_nothing(observation))
    stride = max(1, round(steps.calls.get(steps.function, 1.0)))
    return Side(dataclasses.replace(launch, output=None), steps.function, stride)
