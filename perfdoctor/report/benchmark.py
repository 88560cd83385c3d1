"""A Benchmark for a reader at a terminal."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.schema.benchmark import Benchmark, Exact, Metric

BLOCKS = "▁▂▃▄▅▆▇█"
LABELS = {
    "step_time": "step time",
    "step_time_median": "  median",
    "step_time_p95": "  95th percentile",
    "throughput": "throughput",
    "etl_wait": "wait for data a step",
    "cpu_time": "CPU time a step",
    "compile_time": "compile time",
    "first_step": "time to first step",
    "peak_memory": "peak memory, host",
    "peak_device_memory": "peak memory, device",
}
"""Metrics by name, in the order in which they are shown."""
MIB = 2**20


def render(benchmark: Benchmark, *, width: int = 100, colour: bool = False) -> str:
    """The whole measurement as text, with ANSI colours if asked for."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
    )
    console.print(Text(heading(benchmark), style="dim"))
    console.print()
    console.print(table(benchmark.metrics))
    console.print()
    for number, launch in enumerate(benchmark.launches, 1):
        mark = "" if launch.steady else "  never steady"
        line = f" launch {number:>2}  {sparkline(launch.shape_ms)}  {launch.mean_ms:.4g} ms{mark}"
        console.print(Text(line, style="cyan"), soft_wrap=True)
    if benchmark.exact is not None:
        console.print()
        console.print(Text(f" {program(benchmark.exact)}", style="dim"), soft_wrap=True)
    for warning in benchmark.warnings:
        console.print(Text(f" ! {warning}", style="yellow"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def heading(benchmark: Benchmark) -> str:
    """What was measured, where."""
    here = benchmark.fingerprint
    machine = ", ".join([benchmark.environment["backend"] or "no backend", f"{here.cores:g} cores"])
    jax = benchmark.environment["packages"].get("jax", "not installed")
    name = benchmark.target.name
    return f"perfdoctor {benchmark.perfdoctor} · bench {name} · {machine} · jax {jax}"


def table(metrics: Sequence[Metric]) -> Table:
    """A line for each number."""
    known = {each.name: each for each in metrics}
    rows = Table.grid(padding=(0, 2, 0, 1), pad_edge=True)
    rows.add_column()
    rows.add_column(justify="right")
    rows.add_column()
    for name, label in LABELS.items():
        if name in known:
            rows.add_row(Text(label, style="bold"), *cells(known[name]))
    return rows


def cells(metric: Metric) -> tuple[str, str]:
    """Value with its unit; the interval over launches, or that there is none."""
    value, unit = scaled(metric.value, metric.unit)
    if metric.low is None or metric.high is None:
        return f"{value} {unit}", "one run"
    low, _ = scaled(metric.low, metric.unit)
    high, _ = scaled(metric.high, metric.unit)
    return f"{value} {unit}", f"{low} to {high}"


def scaled(value: float, unit: str) -> tuple[str, str]:
    """A number for a reader."""
    if unit == "bytes":
        return f"{value / MIB:,.0f}", "MiB"
    if value >= 1000:
        return f"{value:,.0f}", unit
    return f"{value:.3g}", unit


def sparkline(values: Sequence[float]) -> str:
    """A block for each value, from the smallest to the largest."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BLOCKS[int((value - low) / span * (len(BLOCKS) - 1))] for value in values)


def program(exact: Exact) -> str:
    """What no noise touches, in a line."""
    flops = f"{exact.flops:.4g} FLOPs, " if exact.flops is not None else ""
    moved = exact.bytes_accessed
    moved_text = f"{moved / MIB:.4g} MiB accessed, " if moved is not None else ""
    compiles = f"{exact.compiles} compiles" if exact.compiles is not None else "compiles vary"
    return (
        f"a step: {flops}{moved_text}{exact.temp_bytes / MIB:.4g} MiB temporary, "
        f"{exact.dispatches:g} dispatches; {compiles}; program {exact.hlo}"
    )
