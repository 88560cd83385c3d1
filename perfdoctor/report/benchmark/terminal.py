"""A Benchmark for a reader at a terminal."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.report.benchmark.words import (
    LABELS,
    MIB,
    cells,
    change,
    exact_change,
    sentence,
)
from perfdoctor.schema.benchmark import Benchmark, Comparison, Exact, Metric

BLOCKS = "▁▂▃▄▅▆▇█"
STYLES = {
    "regressed": "bold red",
    "pass": "bold green",
    "improved": "bold green",
    "inconclusive": "bold yellow",
    "incomparable": "bold yellow",
}


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
    if benchmark.comparison is not None:
        console.print(Text(sentence(benchmark), style=STYLES[benchmark.comparison.verdict]))
        console.print()
    console.print(table(benchmark.metrics, benchmark.comparison))
    if benchmark.comparison is not None:
        for line in behind(benchmark.comparison):
            console.print(Text(f" {line}"), soft_wrap=True)
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


def table(metrics: Sequence[Metric], comparison: Comparison | None) -> Table:
    """A line for each number; its change, where there is a comparison."""
    known = {each.name: each for each in metrics}
    changes = {each.name: each for each in comparison.metrics} if comparison else {}
    rows = Table.grid(padding=(0, 2, 0, 1), pad_edge=True)
    rows.add_column()
    rows.add_column(justify="right")
    rows.add_column()
    rows.add_column()
    for name, label in LABELS.items():
        if name in known:
            each = changes.get(name)
            told = f"{change(each)}  {each.verdict or ''}" if each else ""
            rows.add_row(Text(label, style="bold"), *cells(known[name]), told)
    return rows


def behind(comparison: Comparison) -> list[str]:
    """What no noise touches and changed, and what the two diagnoses differ in."""
    return [*(f"= {exact_change(each)}" for each in comparison.exact), *comparison.causes]


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
