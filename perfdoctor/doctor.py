"""From a target to a report: observation, outcomes of the checks, trials, verdicts."""

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
from perfdoctor.observe.following import Within
from perfdoctor.observe.lines import lines_of
from perfdoctor.observe.session import observe
from perfdoctor.processes import ProcessGroups
from perfdoctor.replay.fidelity import why_unfaithful
from perfdoctor.replay.replay import Replay, way_of
from perfdoctor.report import figures
from perfdoctor.report.rank import Verdict, given_once, judge, proved, ranked, told_once
from perfdoctor.report.summary import environment, steps
from perfdoctor.runner import folders_of, output_of, runner_of
from perfdoctor.schema.fix import MIN_GAIN, Tried
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import CheckResult, Outcome, Report, ReportTarget
from perfdoctor.targets.named import is_named
from perfdoctor.targets.resolve import is_script, resolve
from perfdoctor.trials.change import go_together, merged
from perfdoctor.trials.ladder import remaining
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.trial import Laboratory, Wish, measured
from perfdoctor.trials.way import Way

OBSERVING_SHARE = 0.5
"""The share of the budget that the observed run may take, compilation included; the rest is for
trials and replays."""
SETTING_UP_SHARE = 0.75
"""The share that it may take where it makes no step until then: there is nothing to try, nor to
replay, before one is seen."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    target: str | None = None
    module: str | None = None
    """A module to examine, as `python -m` runs it."""
    arguments: Sequence[str] = ()
    """Arguments of the script or module."""
    budget_s: float = 120.0
    try_fixes: bool | None = None
    """Whether fixes are tried; None: on the reference loop and on workloads, but not on a script,
    which a trial would run again."""
    min_gain: float = MIN_GAIN
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
    def runs_users_code(self) -> bool:
        """Whether it may print something itself."""
        return self.runs_script or is_named(self.target)

    @property
    def tries_fixes(self) -> bool:
        """Whether trials follow."""
        return not self.runs_script if self.try_fixes is None else self.try_fixes

    @property
    def observing_s(self) -> Within:
        """What the observed run may take."""
        if not (self.tries_fixes or self.replays):
            return Within.at_most(self.budget_s)
        return Within(OBSERVING_SHARE * self.budget_s, SETTING_UP_SHARE * self.budget_s)


def check(request: Request, groups: ProcessGroups, say: Callable[[str], None]) -> Report:
    """Diagnose a target, and measure what each fix is worth."""
    deadline = time.monotonic() + request.budget_s
    catalogue = chosen(checks(), request.select, request.ignore)
    target = resolve(request.target, request.module, request.arguments)
    if isinstance(target, Observation):
        saved = ReportTarget(kind="observation", name=str(request.target), args=())
        return diagnosed(target, catalogue, request.min_gain, saved)
    own_folders = folders_of(target)
    with ExitStack() as stack:
        output = stack.enter_context(output_of(request.script_output))
        runner = runner_of(target, groups, output, say, copied=request.workdir_copy)
        folder = groups.folder() if request.replays else None
        replay = None
        if folder is not None:
            replay = stack.enter_context(Replay(groups, runner.launch.env, folder, say))
        in_turn = replay.in_turn if replay is not None else None
        within_s = request.observing_s
        observation = observe(target, runner.launch, groups, within_s, say, folder, in_turn)
        examined = msgspec.structs.replace(target, parts=runner.parts())
        lines = lines_of(observation, own_folders)
        observation = msgspec.structs.replace(observation, target=examined, sources=lines)
        save(observation, request)
        ways = []
        if request.tries_fixes and observation.failure is None and observation.settings is not None:
            ways += runner.ways(observation)
        if replay is not None and is_replayable(observation):
            observation, found = replayed(observation, replay, deadline)
            ways += found if target.workload is None else ()  # a file's are tried on the loop
        if ways:
            laboratory = Laboratory(ways, deadline, request.min_gain, say)
            observation = with_trials(observation, catalogue, laboratory)
    save(observation, request)
    told = ReportTarget(kind=target.kind, name=target.name, args=target.args)
    return diagnosed(observation, catalogue, request.min_gain, told)


def save(observation: Observation, request: Request) -> None:
    """Keep the observation, if the user wants it; before the trials too, so that none is lost."""
    if request.save_observation is not None:
        write_whole(request.save_observation, msgspec.json.encode(observation))


def is_replayable(observation: Observation) -> bool:
    """Whether the run was well; or had to be stopped, for it never came to steps without compiling,
    though the calls of its steps were seen.
    """
    failure = observation.failure
    return failure is None or (failure.kind == "hung" and observation.calls is not None)


def replayed(
    observation: Observation, replay: Replay, deadline: float
) -> tuple[Observation, list[Way]]:
    """What the step takes alone; and ways to measure fixes on it, if it goes as observed.

    Of a step that is dispatched operation by operation, what it takes as one program.
    """
    eager, alone, why = observation.eager, None, None
    ways: list[Way | None] = [*replay.whole(observation)]
    try:
        if eager is not None and eager.is_step:
            alone = replay.told_of_whole(eager, deadline)
        else:
            alone = replay.told(observation, deadline)
            why = why_unfaithful(alone)
            ways += [replay.at_rest(), way_of(replay, alone)]
    except WorkerEnded as error:
        why = str(error)
    missing = dict(observation.not_measured) | ({"alone": why} if why else {})
    observation = msgspec.structs.replace(observation, alone=alone, not_measured=missing)
    return observation, [way for way in ways if way is not None]


def with_trials(
    observation: Observation, catalogue: Sequence[Check], laboratory: Laboratory
) -> Observation:
    """Try what a machine can apply, each check's fixes by themselves, then on top of better
    ones, then all that helped; what helped once more, with the time that is left.
    """
    outcomes = {each.id: each(observation) for each in catalogue}
    promising = [(name, outcomes[name]) for name in worth_trying(outcomes, laboratory)]
    wishes = [Wish(name, outcome.fixes, outcome.sweep) for name, outcome in promising]
    tried = laboratory.best_of_each(wishes)
    verdicts = judged(outcomes, tried, laboratory.min_gain)
    helped = [(v.check, v.fix) for v in ranked(verdicts) if v.measured]
    tried += remaining(laboratory, [(check, fix) for check, fix in helped if fix is not None])
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
    """What is said of each check in the end."""
    return proved(given_once(judged(outcomes, tried, min_gain)))


def judged(
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


def diagnosed(
    observation: Observation, catalogue: Sequence[Check], min_gain: float, examined: ReportTarget
) -> Report:
    """All that the observation and its trials say; the same for a saved one."""
    outcomes = {each.id: each(observation) for each in catalogue}
    verdicts = verdicts_on(outcomes, observation.tried, min_gain)
    shown = [(each, measured(each)) for each in observation.tried]
    documented = {each.id: each.documentation.strip() for each in catalogue}
    findings = tuple(
        verdict.finding(rank, documented[verdict.check])
        for rank, verdict in enumerate(ranked(verdicts), 1)
    )
    gains = [verdict.gain for verdict in ranked(verdicts) if verdict.measured]
    together = [gain for each, gain in shown if each.check == "" and len(gains) > 1]
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
        timeline=observation.timeline,
        memory=figures.memory(observation),
        tried=figures.tried(shown),
        sweeps=figures.sweeps(observation, shown),
        layers=figures.layers(observation),
        sources=figures.sources(observation, findings),
    )
