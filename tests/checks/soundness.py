"""What every finding must have, whichever check made it."""

from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Outcome
from perfdoctor.trials.change import changed_workload


def assert_sound(outcome: Outcome, observation: Observation) -> None:
    """Says what was seen, from where, and fixes that can be made."""
    assert outcome.kind in ("issue", "hint"), outcome
    assert outcome.summary and outcome.evidence
    assert all(fact.name and fact.source for fact in outcome.evidence)
    assert outcome.fixes
    assert all(fix.summary and fix.how for fix in outcome.fixes)
    assert_applicable(outcome, observation)
    if outcome.gain is not None:
        assert 1 <= outcome.gain.low <= outcome.gain.speedup <= outcome.gain.high
        assert outcome.gain.basis == "estimated"


def assert_applicable(outcome: Outcome, observation: Observation) -> None:
    """Each change of the workload makes another workload, and a valid one."""
    workload = observation.target.workload
    for change in (fix.change for fix in outcome.fixes if fix.change is not None):
        assert change != Change()
        of_a_script = change.settings or change.gc_freeze or change.gc_skip_collect or change.cores
        assert not of_a_script or observation.target.runs_users_code
        if change.workload:
            assert workload is not None
            assert changed_workload(workload, change) != workload
