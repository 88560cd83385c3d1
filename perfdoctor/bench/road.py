"""The road of `perfdoctor bench`: target → observation → fresh launches → numbers → file."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perfdoctor import __version__
from perfdoctor.bench.against import endless
from perfdoctor.bench.fingerprint import fingerprint
from perfdoctor.bench.git import source
from perfdoctor.bench.launches import Side, measured
from perfdoctor.bench.metrics import exact, half_width, metrics
from perfdoctor.bench.trust import warnings
from perfdoctor.files import write_whole
from perfdoctor.observe.session import observe
from perfdoctor.patient import output_of, patient_of
from perfdoctor.processes import Ward
from perfdoctor.report.summary import environment
from perfdoctor.schema.benchmark import Benchmark, LaunchRecord, Recipe
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.report import ReportTarget
from perfdoctor.targets.resolve import is_script, resolve
from perfdoctor.trials.live import PlayerEnded

OBSERVING_SHARE = 0.4
"""Of the budget: what the observed run may take at most."""
FEWEST, ENOUGH, MOST = 3, 5, 10
"""Launches: at least, from which on a narrow interval ends the measurement, at most."""
NARROW = 0.02
"""Half of the interval of the step time, relative."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    target: str | None = None
    module: str | None = None
    arguments: Sequence[str] = ()
    budget_s: float = 120.0
    script_output: Path | None = None
    save: Path | None = None
    """Where the numbers are kept, launch by launch."""

    @property
    def runs_script(self) -> bool:
        """Whether a user's program is run."""
        return is_script(self.target, self.module)


def bench(request: Request, ward: Ward, say: Callable[[str], None]) -> Benchmark:
    """Measure a target in fresh launches; NothingMeasured if it makes no steps."""
    until = time.monotonic() + request.budget_s
    target = endless(resolve(request.target, request.module, request.arguments))
    with output_of(request.script_output) as output:
        patient = patient_of(target, ward, output, say, copied=False)
        limit_s = OBSERVING_SHARE * request.budget_s
        observation = observe(target, patient.launch, ward, limit_s, say)
        side = side_of(patient.launch, observation)
        launches: list[LaunchRecord] = []
        for launch in launched(side, ward, until, say):
            launches.append(launch)
            save(summed_up(request, target, observation, launches, complete=False), request)
    found = summed_up(request, target, observation, launches, complete=True)
    save(found, request)
    return found


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
    stride = max(1.0, steps.calls.get(steps.function, 1.0))
    return Side(replace(launch, output=None), steps.function, stride)


def launched(
    side: Side, ward: Ward, until: float, say: Callable[[str], None]
) -> Iterator[LaunchRecord]:
    """Fresh launches in turn, until their mean is known well or the time is up.

    Raises:
        NothingMeasured: the first one failed.
    """
    found: list[LaunchRecord] = []
    longest_s = 0.0
    while len(found) < MOST and time.monotonic() + longest_s < until and not is_narrow(found):
        say(f"launch {len(found) + 1}")
        start = time.monotonic()
        try:
            found.append(measured(ward, side, until))
        except PlayerEnded as error:
            if not found:
                raise NothingMeasured(f"the first launch could not be timed: {error}") from None
            return
        yield found[-1]
        longest_s = max(longest_s, time.monotonic() - start)


def is_narrow(launches: Sequence[LaunchRecord]) -> bool:
    """Whether further launches would hardly say more of the step time."""
    half = half_width([math.log(launch.mean_ms) for launch in launches])
    return len(launches) >= ENOUGH and half is not None and half < NARROW


def summed_up(
    request: Request,
    target: Target,
    observation: Observation,
    launches: Sequence[LaunchRecord],
    *,
    complete: bool,
) -> Benchmark:
    """All that is known by now."""
    numbers = metrics(launches, observation)
    step_time = next((each for each in numbers if each.name == "step_time"), None)
    return Benchmark(
        schema="perfdoctor.benchmark/1",
        perfdoctor=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=ReportTarget(kind=target.kind, name=target.name, args=target.args),
        recipe=Recipe(
            name=request.target,
            module=request.module,
            arguments=tuple(request.arguments),
            workload=target.workload,
        ),
        fingerprint=fingerprint(),
        environment=environment(observation),
        source=source(Path.cwd()),
        launches=tuple(launches),
        complete=complete,
        metrics=numbers,
        exact=exact(launches, observation),
        warnings=warnings(launches, step_time),
    )


def save(benchmark: Benchmark, request: Request) -> None:
    """Keep it, if the user wants it: after each launch, so that none is lost."""
    if request.save is not None:
        write_whole(request.save, msgspec.json.encode(benchmark))
