"""The road of `perfdoctor bench`: target → observation → fresh launches, or live pairs with a
baseline → numbers and a verdict → file.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from perfdoctor import __version__
from perfdoctor.bench.against import Contender, contender, endless
from perfdoctor.bench.comparison import compared, exact_changes, gated_of
from perfdoctor.bench.fingerprint import fingerprint
from perfdoctor.bench.git import source
from perfdoctor.bench.launches import Side, measured
from perfdoctor.bench.metrics import exact, half_width, metrics
from perfdoctor.bench.pairs import Pair, Pairs
from perfdoctor.bench.saved import with_saved
from perfdoctor.bench.trust import warnings
from perfdoctor.bench.why import causes
from perfdoctor.catalogue import checks
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
from perfdoctor.trials.live import WorkerEnded

OBSERVING_SHARE = 0.4
"""Of the budget: what the observed run may take at most."""
ENOUGH, MOST = 5, 10
"""Launches: from which on a narrow interval ends the measurement, at most."""
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
    against: str | None = None
    """What to compare with: git:REF, another target, or saved numbers (.json)."""
    threshold: float = 0.05
    """The smallest slowdown that matters: 0.05 is 5 %."""
    save: Path | None = None
    """Where the numbers are kept, launch by launch."""

    @property
    def runs_script(self) -> bool:
        """Whether a user's program is run."""
        return is_script(self.target, self.module)


def bench(request: Request, ward: Ward, say: Callable[[str], None]) -> Benchmark:
    """Measure a target, by itself or against a baseline; NothingMeasured if it makes no steps."""
    until = time.monotonic() + request.budget_s
    target = endless(resolve(request.target, request.module, request.arguments))
    recipe = Recipe(
        name=request.target,
        module=request.module,
        arguments=tuple(request.arguments),
        workload=target.workload,
    )
    with output_of(request.script_output) as output:
        examine = Examine(ward, output, OBSERVING_SHARE * request.budget_s, say)
        if request.against is None:
            found = by_itself(request, target, recipe, examine, until)
        else:
            with contender(request.against, recipe, ward) as baseline:
                found = compare(request, target, recipe, baseline, examine, until)
    save(found, request)
    return found


def compare(
    request: Request,
    target: Target,
    recipe: Recipe,
    baseline: Contender | Benchmark,
    examine: "Examine",
    until: float,
) -> Benchmark:
    """With a baseline that runs here, in live pairs; with one that can't, by its numbers."""
    if isinstance(baseline, Contender):
        return in_pairs(request, target, recipe, baseline, examine, until)
    found = by_itself(request, target, recipe, examine, until)
    comparison = with_saved(baseline, found, str(request.against), request.threshold)
    return replace(found, comparison=comparison)


def by_itself(
    request: Request, target: Target, recipe: Recipe, examine: "Examine", until: float
) -> Benchmark:
    """Fresh launches, one after the other."""
    side, observation = examine(Contender(target))
    launches: list[LaunchRecord] = []
    for launch in launched(side, examine.ward, until, examine.say):
        launches.append(launch)
        save(summed_up(target, recipe, observation, launches, complete=False), request)
    return summed_up(target, recipe, observation, launches, complete=True)


def in_pairs(
    request: Request,
    target: Target,
    recipe: Recipe,
    baseline: Contender,
    examine: "Examine",
    until: float,
) -> Benchmark:
    """Live pairs of both."""
    side, observation = examine(Contender(target))
    try:
        base_side, base_observation = examine(baseline)
    except NothingMeasured as error:
        raise NothingMeasured(f"the baseline {request.against}: {error}") from None
    launches: list[LaunchRecord] = []
    base_launches: list[LaunchRecord] = []
    pairs = Pairs(examine.ward, base_side, side)

    def play_one(until: float) -> Pair:
        pair = pairs.play(until)
        launches.append(pair.candidate)
        base_launches.extend(pair.baselines)
        save(summed_up(target, recipe, observation, launches, complete=False), request)
        return pair

    seen = (base_observation, observation)
    gated = gated_of([compiling_s(each) for each in seen], [program(each) for each in seen])
    comparison = compared(
        play_one, str(request.against), request.threshold, until, examine.say, gated
    )
    before, after = exact(base_launches, base_observation), exact(launches, observation)
    regressed = comparison.verdict == "regressed"
    why = causes(base_observation, observation, checks()) if regressed else ()
    found = summed_up(target, recipe, observation, launches, complete=True)
    comparison = replace(comparison, exact=exact_changes(before, after), causes=why)
    return replace(found, comparison=comparison)


@dataclass(frozen=True)
class Examine:
    """Observes a target once: what its step is, what it is made of."""

    ward: Ward
    output: int
    limit_s: float
    say: Callable[[str], None]

    def __call__(self, contender: Contender) -> tuple[Side, Observation]:
        """NothingMeasured if it makes no steps."""
        patient = patient_of(contender.target, self.ward, self.output, self.say, copied=False)
        launch = contender.launch(patient.launch)
        observation = observe(contender.target, launch, self.ward, self.limit_s, self.say)
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
        except WorkerEnded as error:
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
    target: Target,
    recipe: Recipe,
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
        recipe=recipe,
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
