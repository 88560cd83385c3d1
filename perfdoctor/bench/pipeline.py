"""What `perfdoctor bench` does: target → observation → fresh launches, or live pairs with a
baseline → numbers and a verdict → file.
"""

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
from perfdoctor.bench.examine import Examine, compiling_s, program
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
from perfdoctor.observe.following import Within
from perfdoctor.processes import ProcessGroups
from perfdoctor.report.summary import environment
from perfdoctor.runner import output_of
from perfdoctor.schema.benchmark import Benchmark, LaunchRecord, Recipe
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.report import ReportTarget
from perfdoctor.targets.named import is_named
from perfdoctor.targets.resolve import is_script, resolve
from perfdoctor.trials.live import WorkerEnded

OBSERVING_SHARE = 0.4
"""The share of the budget that the observed run may take at most."""
ENOUGH, MOST = 5, 10
"""Launches after which a narrow interval ends the measurement; and the most that are made."""
NARROW = 0.02
"""Half the width of the interval of the step time, as a share of it, that is called narrow."""


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

    @property
    def runs_users_code(self) -> bool:
        """Whether it may print something itself."""
        return self.runs_script or is_named(self.target)


def bench(request: Request, groups: ProcessGroups, say: Callable[[str], None]) -> Benchmark:
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
        examine = Examine(groups, output, Within.at_most(OBSERVING_SHARE * request.budget_s), say)
        if request.against is None:
            found = by_itself(request, target, recipe, examine, until)
        else:
            with contender(request.against, recipe, groups) as baseline:
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
    """Compare with a baseline: in live pairs where it runs here, else by its saved numbers."""
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
    for launch in launched(side, examine.groups, until, examine.say):
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
    catalogue = checks()  # a broken installation is told of before anything is measured
    side, observation = examine(Contender(target))
    try:
        base_side, base_observation = examine(baseline)
    except NothingMeasured as error:
        raise NothingMeasured(f"the baseline {request.against}: {error}") from None
    launches: list[LaunchRecord] = []
    base_launches: list[LaunchRecord] = []
    pairs = Pairs(examine.groups, base_side, side)

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
    why = causes(base_observation, observation, catalogue) if regressed else ()
    found = summed_up(target, recipe, observation, launches, complete=True)
    comparison = replace(comparison, exact=exact_changes(before, after), causes=why)
    return replace(found, comparison=comparison)


def launched(
    side: Side, groups: ProcessGroups, until: float, say: Callable[[str], None]
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
            found.append(measured(groups, side, until))
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
