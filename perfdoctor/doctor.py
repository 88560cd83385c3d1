"""The road that data takes: target → observation → outcomes → trials → verdicts → report."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perfdoctor import __version__
from perfdoctor.catalogue import Check, checks, chosen
from perfdoctor.files import write_whole
from perfdoctor.observe.session import observe
from perfdoctor.patient import output_of, patient_of
from perfdoctor.processes import Ward
from perfdoctor.replay.replay import Replay, way_of, why_unfaithful
from perfdoctor.report.rank import Verdict, judge, ranked, told_once
from perfdoctor.report.summary import environment, steps
from perfdoctor.schema.fix import Gain, Tried
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import CheckResult, Outcome, Report, ReportTarget
from perfdoctor.targets.resolve import is_script, resolve
from perfdoctor.trials.change import go_together, merged
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.statistics import gain_of
from perfdoctor.trials.trial import Laboratory, Way, on_the_program

OBSERVING_SHARE = 0.5
"""Of the budget: what the observed run may take, compilation included."""
NO_FUNCTION = ""
"""Where no steps were seen: copies of a script then count all that it calls."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    target: str | None = None
    module: str | None = None
    """A module to examine, as `python -m` runs it."""
    arguments: Sequence[str] = ()
    """Of the script or module."""
    budget_s: float = 120.0
    try_fixes: bool | None = None
    """None: for what is ours, not for a script, which a trial would run again."""
    min_gain: float = 0.05
    """Smallest gain to report: 0.05 is 5 %."""
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    save_observation: Path | None = None
    script_output: Path | None = None
    """Where the script's output goes; None: to stderr."""
    workdir_copy: bool = False
    """Whether trials run a script in copies of the working directory."""
    replays: bool = True
    """Whether a step is captured, and replayed alone."""

    @property
    def runs_script(self) -> bool:
        """Whether a user's program is run."""
        return is_script(self.target, self.module)

    @property
    def tries_fixes(self) -> bool:
        """Whether trials follow."""
        return not self.runs_script if self.try_fixes is None else self.try_fixes


def check(request: Request, ward: Ward, say: Callable[[str], None]) -> Report:
    """Diagnose a target, and measure what each fix is worth."""
    deadline = time.monotonic() + request.budget_s
    catalogue = chosen(checks(), request.select, request.ignore)
    target = resolve(request.target, request.module, request.arguments)
    if isinstance(target, Observation):
        saved = ReportTarget(kind="observation", name=str(request.target), args=())
        return diagnosed(target, catalogue, request.min_gain, saved)
    with output_of(request.script_output) as output:
        patient = patient_of(target, ward, output, say, copied=request.workdir_copy)
        share = OBSERVING_SHARE if request.tries_fixes or request.replays else 1.0
        folder = ward.folder() if request.replays else None
        observation = observe(target, patient.launch, ward, share * request.budget_s, say, folder)
    save(observation, request)
    with ExitStack() as stack:
        ways = []
        if request.tries_fixes and observation.failure is None and observation.settings is not None:
            function = observation.steps.function if observation.steps else NO_FUNCTION
            ways += on_the_program(patient.plays(function), observation.set_in_code)
        if folder is not None and observation.failure is None:
            replay = Replay(ward, patient.launch.env, folder, say)
            observation, way = replayed(observation, stack.enter_context(replay), deadline)
            if way and request.runs_script:  # a workload's fixes are tried on itself
                ways.append(way)
        if ways:
            laboratory = Laboratory(ways, deadline, request.min_gain, say)
            observation = with_trials(observation, catalogue, laboratory)
    save(observation, request)
    examined = ReportTarget(kind=target.kind, name=target.name, args=target.args)
    return diagnosed(observation, catalogue, request.min_gain, examined)


def save(observation: Observation, request: Request) -> None:
    """Keep the observation, if the user wants it; before the trials too, so that none is lost."""
    if request.save_observation is not None:
        write_whole(request.save_observation, msgspec.json.encode(observation))


def replayed(
    observation: Observation, replay: Replay, deadline: float
) -> tuple[Observation, Way | None]:
    """What the step takes alone; and a way to measure fixes on it, if it goes as observed."""
    alone, why = None, None
    try:
        alone = replay.told(observation, deadline)
        why = why_unfaithful(alone)
    except WorkerEnded as error:
        why = str(error)
    missing = dict(observation.not_measured) | ({"alone": why} if why else {})
    observation = msgspec.structs.replace(observation, alone=alone, not_measured=missing)
    return observation, way_of(replay, alone) if alone is not None else None


def with_trials(
    observation: Observation, catalogue: Sequence[Check], laboratory: Laboratory
) -> Observation:
    """Try what a machine can apply, each check's fixes by themselves, then on top of better
    ones, then all that helped; what helped once more, with the time that is left.
    """
    outcomes = {each.id: each(observation) for each in catalogue}
    tried: list[Tried] = []
    for name in worth_trying(outcomes, laboratory):
        tried += laboratory.best_of(name, outcomes[name].fixes, outcomes[name].ladder)
    verdicts = verdicts_on(outcomes, tried, laboratory.min_gain)
    helped = [(v.check, v.fix) for v in ranked(verdicts) if v.measured]
    tried += laboratory.remaining([(check, fix) for check, fix in helped if fix is not None])
    verdicts = verdicts_on(outcomes, tried, laboratory.min_gain)
    helped = [(v.check, v.fix) for v in ranked(verdicts) if v.measured]
    changes = [fix.change for _, fix in helped if fix is not None and fix.change is not None]
    faster = [change for change in changes if change.speeds_up == "steps"]
    if len(faster) > 1 and go_together(faster):
        tried += laboratory.together(merged(faster))
    surer = (laboratory.once_more(t) if (t.check, t.fix) in helped else t for t in tried)
    return msgspec.structs.replace(observation, tried=tuple(surer))


def worth_trying(outcomes: Mapping[str, Outcome], laboratory: Laboratory) -> list[str]:
    """The checks whose fixes a machine can apply and may matter, the most promising first; those
    whose fixes change the training, which it takes longest to try, after all others.
    """
    least = 1 + laboratory.min_gain

    def promise(name: str) -> tuple[bool, float]:
        outcome = outcomes[name]
        trains_the_same = any(fix.changes_results != "training" for fix in outcome.fixes)
        return trains_the_same, outcome.gain.speedup if outcome.gain else 1.0

    found = [
        name
        for name, outcome in outcomes.items()
        if outcome.kind in ("issue", "hint")
        and any(laboratory.can(fix) for fix in outcome.fixes)
        and (outcome.gain is None or outcome.gain.high >= least)
    ]
    return sorted(found, key=promise, reverse=True)


def verdicts_on(
    outcomes: Mapping[str, Outcome], tried: Sequence[Tried], min_gain: float
) -> list[Verdict]:
    """What is said of each check, after its trials."""
    return told_once(
        judge(
            name,
            outcome,
            [(each, measured(each)) for each in tried if each.check == name],
            min_gain,
        )
        for name, outcome in outcomes.items()
    )


def measured(tried: Tried) -> Gain | None:
    """The gain that a trial showed; None if it could not be run."""
    pairs = [pair for pair in tried.log_ratios if pair]
    return gain_of(pairs, tried.basis, tried.emulation_error) if pairs else None


def diagnosed(
    observation: Observation, catalogue: Sequence[Check], min_gain: float, examined: ReportTarget
) -> Report:
    """All that the observation and its trials say; the same for a saved one."""
    outcomes = {each.id: each(observation) for each in catalogue}
    verdicts = verdicts_on(outcomes, observation.tried, min_gain)
    findings = tuple(v.finding(rank) for rank, v in enumerate(ranked(verdicts), 1))
    gains = [verdict.gain for verdict in ranked(verdicts) if verdict.measured]
    together = [measured(each) for each in observation.tried if each.check == "" and len(gains) > 1]
    return Report(
        schema="perfdoctor.report/1",
        perfdoctor=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=examined,
        environment=environment(observation),
        steps=steps(observation),
        findings=findings,
        combined_gain=gains[0] if len(gains) == 1 else next(iter(together), None),
        checks=tuple(
            CheckResult(id=verdict.check, outcome=verdict.kind, summary=verdict.summary)
            for verdict in verdicts
        ),
    )
