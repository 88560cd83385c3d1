import pytest
from msgspec.structs import replace

from perfdoctor.bench.saved import with_saved
from perfdoctor.schema.benchmark import Benchmark
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.report import ReportTarget
from tests.bench.made import HERE, benchmark, launch


def session(*times_ms: float) -> Benchmark:
    """Launches with these step times."""
    return benchmark(*(launch(mean_ms=each) for each in times_ms))


BASELINE = session(5.0, 5.1, 4.9, 5.0, 5.05)


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [
        (session(10.0, 10.1, 9.9), "regressed"),
        (session(5.0, 5.0, 5.1), "inconclusive"),  # days differ by more than 5 %
        (session(2.0, 2.1, 2.0), "improved"),
        (session(6.5, 6.5, 6.6), "inconclusive"),  # so do hosts of the same name, by a quarter
    ],
)
def test_only_large_changes_can_be_told_from_numbers_alone(
    candidate: Benchmark, verdict: str
) -> None:
    found = with_saved(BASELINE, candidate, "a.json", 0.05)
    step = next(each for each in found.metrics if each.name == "step_time")
    assert step.verdict == verdict
    assert (found.how, found.pairs) == ("saved numbers", 0)
    assert found.verdict == verdict


def test_compiling_decides_where_it_is_long_and_another_step_is_compiled() -> None:
    assert BASELINE.exact is not None
    before, after = (benchmark(*[launch(compile_s=s)] * 3) for s in (5.0, 15.0))
    assert with_saved(before, after, "a.json", 0.5).verdict == "pass"  # one program
    other = replace(after, exact=replace(BASELINE.exact, hlo="another program"))
    assert with_saved(before, other, "a.json", 0.5).verdict == "regressed"


def test_a_large_threshold_can_pass() -> None:
    assert with_saved(BASELINE, session(5.0, 5.0, 5.1), "a.json", 0.5).verdict == "pass"


def test_one_launch_each_tells_nothing() -> None:
    assert with_saved(session(5.0), session(50.0), "a.json", 0.05).verdict == "inconclusive"


def test_numbers_of_another_machine_can_not_be_compared() -> None:
    elsewhere = replace(BASELINE, fingerprint=replace(HERE, cpu="Xeon"))
    found = with_saved(elsewhere, session(50.0, 51.0), "a.json", 0.05)
    assert (found.verdict, found.metrics, found.exact) == ("incomparable", (), ())
    assert "cpu Xeon, here EPYC" in found.summary


def test_numbers_of_another_target_are_refused() -> None:
    other = replace(BASELINE, target=ReportTarget(kind="script", name="other.py", args=("-v",)))
    with pytest.raises(UsageError, match=r"numbers of other\.py -v, not of train\.py"):
        with_saved(other, BASELINE, "a.json", 0.05)


def test_a_baseline_without_launches_is_refused() -> None:
    with pytest.raises(UsageError, match="holds no launch"):
        with_saved(benchmark(), BASELINE, "a.json", 0.05)


def test_what_is_exact_is_compared_too() -> None:
    assert BASELINE.exact is not None
    changed = replace(BASELINE, exact=replace(BASELINE.exact, flops=3e6))
    (change,) = with_saved(BASELINE, changed, "a.json", 0.05).exact
    assert (change.name, change.before, change.after) == ("flops", 2e6, 3e6)
