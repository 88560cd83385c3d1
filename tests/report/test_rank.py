from dataclasses import replace as changed
from typing import Literal

import pytest
from msgspec.structs import replace

from perfdoctor.report.rank import (
    Verdict,
    given_once,
    interval,
    judge,
    proved,
    ranked,
    told_once,
)
from perfdoctor.report.words import advice
from perfdoctor.schema.fix import Change, Fix, Gain, Tried
from perfdoctor.schema.report import Evidence, Finding, Kind, Outcome

FACT = Evidence(name="wait", value=1.0, unit="ms", source="trace")
FIRST = Fix(summary="prefetch", how="prefetch = 4")
SECOND = Fix(summary="decode once", how="source = records")


def measured(low: float, speedup: float, high: float) -> Gain:
    return Gain(speedup=speedup, low=low, high=high, basis="measured")


def estimated(low: float, speedup: float, high: float) -> Gain:
    return Gain(speedup=speedup, low=low, high=high, basis="estimated")


LARGE, SMALL = estimated(1.2, 1.5, 2.0), estimated(1.01, 1.04, 1.1)


def outcome(kind: Kind, gain: Gain | None = None) -> Outcome:
    return Outcome(kind=kind, summary="waits", evidence=(FACT,), fixes=(FIRST, SECOND), gain=gain)


def trial(fix: Fix, gain: Gain | None, failure: str | None = None) -> tuple[Tried, Gain | None]:
    return Tried(check="etl", fix=fix, failure=failure), gain


def verdict(kind: Kind, check: str, gain: Gain | None = None) -> Verdict:
    return Verdict(check, kind, "waits", gain=gain)


def test_an_estimate_that_is_worth_it_makes_an_issue() -> None:
    assert judge("etl", outcome("issue", LARGE), [], 0.05) == Verdict(
        "etl", "issue", "waits", (FACT,), FIRST, LARGE
    )


@pytest.mark.parametrize("gain", [SMALL, estimated(1.0, 1.5, 2.0), estimated(0.9, 1.2, 1.5)])
def test_an_estimate_that_is_small_or_unsure_makes_a_hint(gain: Gain) -> None:
    assert judge("etl", outcome("issue", gain), [], 0.05).kind == "hint"


def test_the_smallest_gain_to_report_is_the_users() -> None:
    assert judge("etl", outcome("issue", SMALL), [], 0.01).kind == "issue"
    assert judge("etl", outcome("issue", SMALL), [], 0.03).kind == "hint"  # 1 % at its low end
    assert judge("etl", outcome("issue", LARGE), [], 0.6).kind == "hint"


def test_an_issue_without_a_gain_stays_one() -> None:
    assert judge("backend", outcome("issue"), [], 0.05).kind == "issue"


def test_a_hint_stays_one_whatever_it_estimates() -> None:
    assert judge("avx", outcome("hint"), [], 0.05).kind == "hint"
    assert judge("avx", outcome("hint", LARGE), [], 0.05).kind == "hint"


@pytest.mark.parametrize("kind", ["issue", "hint"])
def test_a_measured_gain_makes_an_issue_of_either(kind: Kind) -> None:
    gain = measured(1.3, 1.4, 1.5)
    trials = [trial(SECOND, gain), trial(FIRST, measured(1.0, 1.1, 1.2))]
    assert judge("etl", outcome(kind, SMALL), trials, 0.05) == Verdict(
        "etl", "issue", "waits", (FACT,), SECOND, gain
    )


@pytest.mark.parametrize("kind", ["issue", "hint"])
def test_a_trial_without_a_gain_makes_a_hint_of_either(kind: Kind) -> None:
    said = judge("etl", outcome(kind, LARGE), [trial(SECOND, measured(0.97, 1.0, 1.03))], 0.05)
    assert said.kind == "hint"
    assert said.summary == "waits; tried source = records: no reliable gain (1.00× (0.97–1.03))"
    assert said.gain == measured(0.97, 1.0, 1.03)


def test_a_measured_gain_must_be_reliable_as_well_as_large() -> None:
    trials = [trial(FIRST, measured(0.9, 1.5, 2.5))]
    assert judge("etl", outcome("issue", LARGE), trials, 0.05).kind == "hint"


def test_where_every_trial_failed_the_estimate_decides_and_the_failures_are_told() -> None:
    trials = [trial(FIRST, None, "out of memory"), trial(SECOND, None, "killed")]
    said = judge("etl", outcome("issue", LARGE), trials, 0.05)
    assert (said.kind, said.fix, said.gain) == ("issue", FIRST, LARGE)
    assert said.summary == (
        "waits; prefetch = 4 failed: out of memory; source = records failed: killed"
    )
    assert judge("etl", outcome("hint"), trials, 0.05).kind == "hint"


def test_a_fix_that_failed_is_told_beside_the_one_that_helped() -> None:
    trials = [trial(SECOND, measured(1.3, 1.4, 1.5)), trial(FIRST, None, "killed")]
    said = judge("etl", outcome("issue", LARGE), trials, 0.05)
    assert said.kind == "issue" and said.summary == "waits; prefetch = 4 failed: killed"


@pytest.mark.parametrize("kind", ["ok", "not-applicable", "not-measured", "crashed"])
def test_other_outcomes_are_passed_on_without_fix_and_gain(kind: Kind) -> None:
    assert judge("etl", outcome(kind, LARGE), [], 0.05) == Verdict("etl", kind, "waits", (FACT,))


def test_a_hint_without_a_fix_is_no_trouble() -> None:
    bare = Outcome(kind="hint", summary="rivals")
    assert judge("x", bare, [], 0.05) == Verdict("x", "hint", "rivals")


@pytest.mark.parametrize(
    ("gain", "answer"),
    [
        (measured(1.01, 1.05, 1.1), True),
        (measured(1.01, 1.049, 1.1), False),
        (measured(1.0, 1.2, 1.4), False),
        (measured(0.5, 0.8, 0.9), False),
        (Gain(speedup=1.13, low=1.04, high=1.3, basis="replayed"), False),
        (Gain(speedup=1.13, low=1.05, high=1.3, basis="replayed"), True),
        (estimated(1.04, 1.13, 1.3), False),
        (estimated(1.05, 1.13, 1.3), True),
    ],
)
def test_worth(gain: Gain, answer: bool) -> None:
    assert gain.is_worth(0.05) is answer


def test_issues_are_ranked_by_what_is_sure_of_their_gain() -> None:
    verdicts = [
        verdict("issue", "unsure", measured(1.1, 3.0, 9.0)),
        verdict("issue", "sure", measured(1.9, 2.0, 2.1)),
        verdict("issue", "small", measured(1.05, 1.06, 1.07)),
    ]
    assert [each.check for each in ranked(verdicts)] == ["sure", "unsure", "small"]


def test_what_keeps_the_run_from_running_comes_first() -> None:
    verdicts = [
        verdict("issue", "etl", measured(90.0, 99.0, 100.0)),
        verdict("issue", "backend"),
    ]
    assert [each.check for each in ranked(verdicts)] == ["backend", "etl"]


def test_only_issues_are_ranked() -> None:
    kinds: list[Kind] = ["hint", "ok", "not-applicable", "not-measured", "crashed"]
    assert ranked(verdict(kind, "x", LARGE) for kind in kinds) == []


def test_a_verdict_becomes_a_finding_in_its_place() -> None:
    said = judge("etl", outcome("issue", LARGE), [], 0.05)
    assert said.finding(3) == Finding(
        check="etl", rank=3, summary="waits", evidence=(FACT,), fix=FIRST, gain=LARGE
    )


def test_an_interval_is_written_with_two_decimals() -> None:
    assert interval(measured(1.196, 1.234, 1.2649)) == "1.23× (1.20–1.26)"


def test_a_fix_that_gains_nothing_after_a_better_one_has_the_same_cause() -> None:
    gain, nothing = measured(1.3, 1.4, 1.5), measured(0.98, 1.01, 1.04)
    after = Tried(check="etl", fix=FIRST, after=("transfers",))
    said = judge("etl", outcome("issue", LARGE), [trial(FIRST, gain), (after, nothing)], 0.05)
    assert (said.kind, said.gain, said.remaining) == ("hint", gain, nothing)
    assert said.summary.endswith("after the fix of transfers it gains no more (1.01× (0.98–1.04))")


def test_what_a_fix_gains_after_a_better_one_is_told() -> None:
    gain, rest = measured(1.3, 1.4, 1.5), measured(1.1, 1.2, 1.3)
    after = Tried(check="etl", fix=FIRST, after=("transfers",))
    said = judge("etl", outcome("issue", LARGE), [trial(FIRST, gain), (after, rest)], 0.05)
    assert (said.kind, said.gain, said.remaining) == ("issue", gain, rest)
    assert said.finding(2).remaining_gain == rest


def test_what_changes_the_training_must_gain_as_much_after_a_better_fix_as_by_itself() -> None:
    gain, rest = measured(1.9, 2.0, 2.1), measured(1.1, 1.2, 1.3)
    larger = replace(FIRST, changes_results="training")
    after = Tried(check="batch-size", fix=larger, after=("host-sync",))
    said = judge("batch-size", outcome("issue", LARGE), [trial(larger, gain), (after, rest)], 0.05)
    assert said.kind == "hint"
    assert said.summary.endswith(
        "after the fix of host-sync it gains too little (1.20× (1.10–1.30))"
    )


def test_a_remainder_that_could_not_be_measured_changes_nothing() -> None:
    gain = measured(1.3, 1.4, 1.5)
    after = Tried(check="etl", fix=FIRST, after=("transfers",), failure="it crashed")
    said = judge("etl", outcome("issue", LARGE), [trial(FIRST, gain), (after, None)], 0.05)
    assert (said.kind, said.remaining) == ("issue", None)


def test_what_was_tried_last_on_top_of_others_decides() -> None:
    gain, rest, nothing = measured(1.9, 2, 2.1), measured(1.5, 1.6, 1.7), measured(0.9, 1, 1.1)
    tried = [
        (Tried(check="batch-size", fix=FIRST, after=("gc",)), rest),
        (Tried(check="batch-size", fix=FIRST, after=("workspaces",)), nothing),
    ]
    said = judge("batch-size", outcome("issue", LARGE), [trial(FIRST, gain), *tried], 0.05)
    assert (said.kind, said.remaining) == ("hint", nothing)


def by_training(low: float, remaining: Gain | None = None) -> Verdict:
    larger = replace(FIRST, changes_results="training")
    gain = replace(measured(low, low + 1, low + 2), basis="replayed")
    return Verdict("batch-size", "issue", "small", fix=larger, gain=gain, remaining=remaining)


@pytest.mark.parametrize(("low", "kind"), [(2.4, "hint"), (3.7, "hint"), (3.8, "issue")])
def test_what_changes_the_training_is_no_finding_where_another_fix_may_spare_the_same(
    low: float, kind: str
) -> None:
    other = Verdict("workspaces", "issue", "copies", fix=FIRST, gain=measured(2.0, 2.5, 3.0))
    larger, same = proved([by_training(low), other])
    assert (larger.kind, same) == (kind, other)
    assert ("the fix of workspaces may spare the same" in larger.summary) == (kind == "hint")


@pytest.mark.parametrize(("basis", "kind"), [("measured", "hint"), ("estimated", "issue")])
def test_an_estimate_of_what_changes_the_training_has_to_be_sure_beside_what_was_measured(
    basis: Literal["measured", "estimated"], kind: str
) -> None:
    gain = replace(measured(2.0, 2.5, 3.0), basis=basis)
    other = Verdict("workspaces", "issue", "copies", fix=FIRST, gain=gain)
    sparse = by_training(2.4)
    assert sparse.gain is not None
    estimate = changed(sparse, gain=replace(sparse.gain, basis="estimated"))
    assert [each.kind for each in proved([estimate, other])] == [kind, "issue"]


def test_what_was_measured_on_top_of_another_fix_needs_no_doubt() -> None:
    other = Verdict("workspaces", "issue", "copies", fix=FIRST, gain=measured(2.0, 2.5, 3.0))
    on_top = by_training(2.4, remaining=measured(1.3, 1.4, 1.5))
    launch = changed(other, fix=replace(FIRST, change=Change(speeds_up="launch")))
    hint = changed(other, kind="hint")
    assert proved([on_top, other])[0] == on_top
    for beside in (launch, hint):
        assert proved([by_training(2.4), beside])[0].kind == "issue"


def test_what_changes_the_training_gains_what_remains_after_others_that_do_not() -> None:
    rest = measured(1.3, 1.4, 1.5)
    other = Verdict("gc", "issue", "collects", fix=FIRST, gain=measured(2.3, 2.5, 3.0))
    larger = changed(by_training(2.4, remaining=rest), after=("gc", "etl"))
    told, same = given_once([larger, other])
    assert (told.gain, same) == (rest, other)
    assert told.summary == "small; its gain is on top of the fix of gc"
    assert advice(told.finding(2)).endswith(FIRST.summary + "; changes training")
    better = changed(other, gain=measured(2.5, 2.6, 2.7))
    for beside in (better, changed(other, kind="hint"), changed(other, check="dtype")):
        assert given_once([larger, beside])[0] == larger
    assert given_once([by_training(2.4), other])[0] == by_training(2.4)


def test_what_was_measured_on_the_program_itself_needs_no_doubt_either() -> None:
    other = Verdict("etl", "issue", "waits", fix=FIRST, gain=measured(2.0, 2.5, 3.0))
    on_program = changed(by_training(2.4), gain=measured(2.4, 3.4, 4.4))
    assert proved([on_program, other]) == [on_program, other]


def test_what_makes_a_launch_quicker_comes_after_all_that_makes_steps_quicker() -> None:
    launch = Fix(summary="cache", how="cache", change=Change(speeds_up="launch"))
    first = Verdict("compile-cache", "issue", "compiles", fix=launch, gain=measured(2, 3, 4))
    second = verdict("issue", "etl", LARGE)
    assert ranked([first, second]) == [second, first]


def test_what_is_a_consequence_of_another_finding_is_none() -> None:
    compiling = verdict("issue", "compile-cache", LARGE)
    cause = verdict("issue", "recompilation", LARGE)
    said = {each.check: each for each in told_once([compiling, cause])}
    assert (said["compile-cache"].kind, said["compile-cache"].gain) == ("ok", None)
    assert said["compile-cache"].summary.endswith("a consequence of recompilation")
    assert said["recompilation"] == cause
    alone = [compiling, verdict("hint", "recompilation", LARGE)]
    assert told_once(alone) == alone


def guessed(fix: Fix, gain: Gain) -> tuple[Tried, Gain | None]:
    """Of a replayed step that is not near enough to the program's own."""
    return Tried(check="etl", fix=fix, basis="estimated"), gain


def test_a_trial_that_is_an_estimate_confirms_and_does_not_refute() -> None:
    nothing, much = estimated(0.9, 1.0, 1.1), estimated(1.5, 1.8, 2.2)
    said = judge("etl", outcome("issue", LARGE), [guessed(SECOND, nothing)], 0.05)
    assert (said.kind, said.fix, said.gain) == ("issue", FIRST, LARGE)
    said = judge("etl", outcome("hint"), [guessed(SECOND, much)], 0.05)
    assert (said.kind, said.fix, said.gain) == ("issue", SECOND, much)
    assert not said.measured


def test_what_changes_the_training_must_gain_more_to_be_a_finding() -> None:
    larger = Fix(summary="batch 64", how="batch = 64", changes_results="training")
    few = judge("batch-size", outcome("hint"), [trial(larger, measured(1.1, 1.2, 1.3))], 0.05)
    much = judge("batch-size", outcome("hint"), [trial(larger, measured(1.2, 1.3, 1.4))], 0.05)
    assert (few.kind, much.kind) == ("hint", "issue")


@pytest.mark.parametrize(
    ("gain", "kind"),
    [
        (estimated(1.1, 1.4, 1.8), "issue"),  # it surely loses something, and probably as much
        (estimated(1.1, 1.2, 1.3), "hint"),
        (estimated(1.0, 1.4, 1.8), "hint"),
    ],
)
def test_a_bound_must_surely_lose_something_and_probably_be_worth_the_work(
    gain: Gain, kind: Kind
) -> None:
    bound = Fix(summary="cheaper", how="decode once", change=Change(is_bound=True))
    tried = Tried(check="etl", fix=bound, basis="replayed")
    assert judge("etl", outcome("hint"), [(tried, gain)], 0.05).kind == kind


def test_an_estimated_trial_of_a_bound_that_is_not_worth_it_refutes_nothing() -> None:
    bound = Fix(summary="cheaper", how="decode once", change=Change(is_bound=True))
    said = judge("etl", outcome("issue", LARGE), [guessed(bound, estimated(1.1, 1.2, 1.3))], 0.05)
    assert (said.kind, said.gain) == ("issue", LARGE)
