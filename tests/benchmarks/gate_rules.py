"""The rules by which other tools call a program slower, on the launches of our own comparisons.

Each rule is given LAUNCHES pairs, of which each holds three launches: the baseline, the baseline
again, which the rules don't get, and the candidate. asv, pyperf and pytest-benchmark
are asked themselves, by the functions that their own commands call (pip install asv pyperf
pytest-benchmark); hyperfine and benchstat are no Python, so their tests are made with scipy.

The launches were interleaved, which none of these tools does; gate_accuracy also gives them some of
two times.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

Pairs = Sequence[dict[str, Any]]
LAUNCHES = 5
"""Of each side: benchstat's test can't find anything in fewer than four."""
FACTOR = 1.1
"""asv's own default."""


def launches(pairs: Pairs) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of the baseline and of the candidate."""
    return [each["launches"][0] for each in pairs], [each["launches"][-1] for each in pairs]


def means(pairs: Pairs) -> tuple[list[float], list[float]]:
    """The mean step times of the launches."""
    before, after = launches(pairs)
    return [each["mean_ms"] for each in before], [each["mean_ms"] for each in after]


def torchbench(pairs: Pairs) -> bool:
    """7 % in the median of one launch's parts (pytorch/benchmark, regression_detector.py)."""
    before, after = (median(each[0]["values_ms"]) for each in launches(pairs))
    return bool(after > 1.07 * before)


def pytest_benchmark(pairs: Pairs) -> bool:
    """--benchmark-compare-fail=mean:10% of one launch."""
    from pytest_benchmark.utils import parse_compare_fail

    before, after = means(pairs)
    check = parse_compare_fail("mean:10%")
    return bool(check.fails({"mean": after[0]}, {"mean": before[0]}))


def pyperf(pairs: Pairs) -> bool:
    """`pyperf compare_to` of as many worker processes as there are pairs."""
    import pyperf as tool
    from pyperf._compare import CompareResult

    def benchmark(records: Sequence[dict[str, Any]]) -> Any:
        about = {"name": "step"}
        return tool.Benchmark(
            [
                tool.Run(
                    [value / 1e3 for value in each["values_ms"]],
                    metadata=about,
                    collect_metadata=False,
                )
                for each in records
            ]
        )

    before, after = (benchmark(each) for each in launches(pairs))
    result = CompareResult(Named("before", before), Named("after", after))
    return bool(result.significant and after.mean() > before.mean())


class Named:
    """What pyperf compares: a benchmark with a name."""

    def __init__(self, name: str, benchmark: Any) -> None:
        self.name, self.benchmark = name, benchmark


def asv(pairs: Pairs) -> bool:
    """`asv compare`: worse by its factor of 1.1, and statistically different."""
    from asv.commands.compare import _is_result_better
    from asv_runner.statistics import compute_stats

    before, after = means(pairs)
    stats = [compute_stats(each, 1) for each in (before, after)]
    (mean_before, stats_before), (mean_after, stats_after) = stats
    return bool(
        _is_result_better(
            mean_before, mean_after, (stats_before, before), (stats_after, after), FACTOR
        )
    )


def hyperfine(pairs: Pairs) -> bool:
    """scripts/welch_ttest.py of its repository: p < 0.05, and slower."""
    from scipy.stats import ttest_ind

    before, after = means(pairs)
    test = ttest_ind(before, after, equal_var=False)
    return bool(test.pvalue < 0.05 and fmean(after) > fmean(before))


def benchstat(pairs: Pairs) -> bool:
    """Mann-Whitney U at 0.05, and slower in the median (golang.org/x/perf/cmd/benchstat)."""
    from scipy.stats import mannwhitneyu

    before, after = means(pairs)
    return bool(mannwhitneyu(before, after).pvalue < 0.05 and median(after) > median(before))


RULES: dict[str, Callable[[Pairs], bool]] = {
    "TorchBench +7 %": torchbench,
    "pytest-benchmark": pytest_benchmark,
    "pyperf": pyperf,
    "asv": asv,
    "hyperfine": hyperfine,
    "benchstat": benchstat,
}
