"""What all renderers of a Benchmark say alike."""

from perfdoctor.answers import unit_of
from perfdoctor.schema.benchmark import Benchmark, Compared, ExactChange, Metric

LABELS = {
    "step_time": "step time",
    "step_time_median": "step time, median",
    "step_time_p95": "step time, 95th percentile",
    "throughput": "throughput",
    "etl_wait": "wait for data a step",
    "cpu_time": "CPU time a step",
    "compile_time": "compile time",
    "first_step": "time to first step",
    "peak_memory": "peak memory, host",
    "peak_device_memory": "peak memory, device",
}
"""Metrics by name, in the order in which they are shown."""
EXACT = {
    "flops": "FLOPs a step",
    "bytes_accessed": "bytes accessed a step",
    "temp_bytes": "temporary bytes",
    "hlo": "optimised program",
    "compiles": "compilations",
    "dispatches": "dispatches a step",
    "programs": "programs run a step",
}
"""What no noise touches, by its name in Exact."""


def unit_for(value: float, unit: str) -> tuple[float, str]:
    """The unit in which a reader sees a number, and how much of the number's own unit it is."""
    return unit_of(value) if unit == "bytes" else (1.0, unit)


def scaled(value: float, unit: str, like: float | None = None) -> tuple[str, str]:
    """A number and its unit for a reader; `like`: another number, in whose unit it is told."""
    size, shown = unit_for(value if like is None else like, unit)
    number = value / size
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}", shown


def cells(metric: Metric) -> tuple[str, str]:
    """Value with its unit; the interval over launches, or that there is none."""
    value, unit = scaled(metric.value, metric.unit)
    if metric.low is None or metric.high is None:
        return f"{value} {unit}", "one run"
    low, _ = scaled(metric.low, metric.unit, metric.value)
    high, _ = scaled(metric.high, metric.unit, metric.value)
    return f"{value} {unit}", f"{low} to {high}"


def change(compared: Compared) -> str:
    """+3.1 % (+1.0 to +5.2 %)."""
    return f"{compared.change:+.1%} ({compared.low:+.1%} to {compared.high:+.1%})"


def exact_change(each: ExactChange) -> str:
    """What no noise touches, and how it changed."""
    name = EXACT.get(each.name, each.name)
    if isinstance(each.before, str) or isinstance(each.after, str):
        return f"another {name}"
    if each.before is None or each.after is None:
        return f"{name}: {number(each.after)}, was {number(each.before)}"
    more = each.after - each.before
    share = f", {more / each.before:+.1%}" if each.before else ""
    return f"{name}: {number(each.before)} to {number(each.after)} ({more:+.4g}{share})"


def number(value: float | str | None) -> str:
    """A number that may be unknown."""
    return (
        "unknown" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value}"
    )


COUNTED = (
    "the calls of a step are counted by a wrapper around what jax.jit returns, "
    "which costs each side the same; no profiler runs while it is timed"
)
"""The reference loop counts its steps itself."""


def counting(benchmark: Benchmark) -> str:
    """How the steps of the user's own program were counted; empty for the reference loop."""
    return COUNTED if benchmark.target.kind == "script" and benchmark.launches else ""


def sentence(benchmark: Benchmark) -> str:
    """The verdict of a comparison; empty without one."""
    found = benchmark.comparison
    if found is None:
        return ""
    pairs = f", {found.pairs} pairs in {found.seconds:.0f} s" if found.pairs else ""
    limit = f", threshold {100 * found.threshold:g}%"
    return f"{found.verdict} against {found.against}: {found.summary}{pairs}{limit}"
