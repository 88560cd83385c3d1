"""The road that data takes: target → observation → outcomes → trials → verdicts → report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec

from perfdoctor import __version__
from perfdoctor.catalogue import Check, checks, chosen
from perfdoctor.files import write_whole
from perfdoctor.observe.session import observe
from perfdoctor.processes import Ward
from perfdoctor.report.rank import Verdict, judge, ranked
from perfdoctor.report.summary import environment, steps
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.report import (
    Change,
    CheckResult,
    Gain,
    Outcome,
    Report,
    ReportTarget,
)
from perfdoctor.targets import workload
from perfdoctor.targets.reference import dataset
from perfdoctor.targets.resolve import resolve
from perfdoctor.trials.change import changed_env, changed_workload, merged
from perfdoctor.trials.trial import Laboratory, Launcher, Trial

OBSERVING_SHARE = 0.5
"""Of the budget: what the observed run may take, compilation included."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    target: str | None = None
    budget_s: float = 120.0
    try_fixes: bool = True
    min_gain: float = 0.05
    """Smallest gain to report: 0.05 is 5 %."""
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    save_observation: Path | None = None


def check(request: Request, ward: Ward, say: Callable[[str], None]) -> Report:
    """Diagnose a target, and measure what each fix is worth."""
    deadline = time.monotonic() + request.budget_s
    catalogue = chosen(checks(), request.select, request.ignore)
    target = resolve(request.target)
    if isinstance(target, Observation):
        observation, launcher = target, None
    else:
        launcher = launcher_of(target, ward, say)
        observation = observe(
            target, launcher(Change()), ward, request.budget_s * OBSERVING_SHARE, say
        )
    if request.save_observation is not None:
        write_whole(request.save_observation, msgspec.json.encode(observation))
    outcomes = {each.id: each(observation) for each in catalogue}
    trials: dict[str, list[Trial]] = {}
    laboratory = None
    if launcher is not None and request.try_fixes and observation.failure is None:
        controlled = with_options(launcher, "--controlled")
        laboratory = Laboratory(ward, controlled, deadline, request.min_gain, say)
        trials = {
            name: laboratory.best_of(outcomes[name].fixes, outcomes[name].ladder)
            for name in worth_trying(outcomes, request.min_gain)
        }
    verdicts = [
        judge(each.id, outcomes[each.id], trials.get(each.id, []), request.min_gain)
        for each in catalogue
    ]
    return report(observation, catalogue, verdicts, combined(verdicts, laboratory))


def launcher_of(target: Target, ward: Ward, say: Callable[[str], None]) -> Launcher:
    """Makes launches of the reference loop on the target's workload, changed as asked."""
    plan = target.workload
    if plan is None:
        raise UsageError(f"{target.name} is no workload")
    folder, numbers = ward.folder(), count()

    def launch(change: Change) -> Launch:
        changed = changed_workload(plan, change)
        data = dataset.ensure(changed, ward, say)
        started = workload.launch(changed, folder / f"{next(numbers)}.json", data)
        return replace(started, env=changed_env(started.env, change))

    return launch


def with_options(launcher: Launcher, *options: str) -> Launcher:
    """The same launches with further arguments."""

    def launch(change: Change) -> Launch:
        started = launcher(change)
        return replace(started, arguments=(*started.arguments, *options))

    return launch


def worth_trying(outcomes: dict[str, Outcome], min_gain: float) -> list[str]:
    """The checks whose fixes a machine can apply and may matter, the most promising first."""

    def promise(name: str) -> float:
        gain = outcomes[name].gain
        return gain.speedup if gain else 1.0

    found = [
        name
        for name, outcome in outcomes.items()
        if outcome.kind in ("issue", "hint")
        and any(fix.change is not None for fix in outcome.fixes)
        and (outcome.gain is None or outcome.gain.high >= 1 + min_gain)
    ]
    return sorted(found, key=promise, reverse=True)


def combined(verdicts: Sequence[Verdict], laboratory: Laboratory | None) -> Gain | None:
    """The gain of all measured fixes together; None if there are none or no time is left."""
    found = [v for v in verdicts if v.kind == "issue" and v.gain and v.gain.basis == "measured"]
    if len(found) < 2 or laboratory is None:
        return found[0].gain if found else None
    changes = [v.fix.change for v in ranked(found) if v.fix and v.fix.change]
    return laboratory.gain_of(merged(changes))


def report(
    observation: Observation,
    catalogue: Sequence[Check],
    verdicts: Sequence[Verdict],
    combined_gain: Gain | None,
) -> Report:
    """All that was found, as plain data."""
    target = observation.target
    return Report(
        schema="perfdoctor.report/1",
        perfdoctor=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=ReportTarget(kind=target.kind, name=target.name, args=target.args),
        environment=environment(observation),
        steps=steps(observation),
        findings=tuple(v.finding(rank) for rank, v in enumerate(ranked(verdicts), 1)),
        combined_gain=combined_gain,
        checks=tuple(
            CheckResult(id=each.id, outcome=verdict.kind, summary=verdict.summary)
            for each, verdict in zip(catalogue, verdicts, strict=True)
        ),
    )
