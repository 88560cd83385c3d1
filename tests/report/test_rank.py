import pytest

from perfdoctor.report.rank import Verdict, interval, judge, ranked, worth
from perfdoctor.schema.fix import Fix, Gain, Tried
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
    assert judge("etl", outcome("issue", SMALL), [], 0.03).kind == "issue"
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
    ],
)
def test_worth(gain: Gain, answer: bool) -> None:
    assert worth(gain, 0.05) is answer


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
