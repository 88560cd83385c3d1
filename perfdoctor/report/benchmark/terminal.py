"""A Benchmark for a reader at a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from perfdoctor.answers import sized
from perfdoctor.report.benchmark.words import (
    LABELS,
    cells,
    change,
    counting,
    exact_change,
    sentence,
)
from perfdoctor.report.console import Lines, printed
from perfdoctor.report.screen import Detail, Screen
from perfdoctor.report.words import share_of
from perfdoctor.schema.benchmark import Benchmark, Comparison, Exact, Metric

BLOCKS = "▁▂▃▄▅▆▇█"
"""Heights of a plot in one line, from the lowest."""
STYLES = {
    "regressed": "bold red",
    "pass": "bold green",
    "improved": "bold green",
    "inconclusive": "bold yellow",
    "incomparable": "bold yellow",
}
"""How a terminal shows a verdict."""


def render(benchmark: Benchmark, screen: Screen | None = None) -> str:
    """The whole measurement as text, as the screen shows it."""
    screen = screen or Screen()
    if screen.detail is Detail.quiet:
        return printed([Lines(" ".join(one_line(benchmark).split()))], screen)
    return printed(blocks(benchmark), screen)


def one_line(benchmark: Benchmark) -> str:
    """The verdict, or the first number."""
    told = sentence(benchmark)
    if not told:
        known = {each.name: each for each in benchmark.metrics}
        first = next((name for name in LABELS if name in known), None)
        told = f"{LABELS[first]} {' '.join(cells(known[first]))}" if first else "nothing measured"
    return f"{benchmark.target.name}: {told}"


def blocks(benchmark: Benchmark) -> Iterator[RenderableType]:
    """From top to bottom."""
    yield Text(heading(benchmark), style="dim")
    yield ""
    if benchmark.comparison is not None:
        yield Text(sentence(benchmark), style=STYLES[benchmark.comparison.verdict])
        yield ""
    yield table(benchmark.metrics, benchmark.comparison)
    if benchmark.comparison is not None:
        yield from (Lines(f" {line}") for line in behind(benchmark.comparison))
    yield ""
    for number, launch in enumerate(benchmark.launches, 1):
        mark = "" if launch.steady else "  never steady"
        line = f" launch {number:>2}  {sparkline(launch.shape_ms)}  {launch.mean_ms:.4g} ms{mark}"
        yield Lines(line, style="cyan")
    if benchmark.exact is not None:
        yield ""
        yield Lines(f" {program(benchmark.exact)}", style="dim")
    if told := counting(benchmark):
        yield Text(f" {told}", style="dim")
    yield from (Text(f" ! {warning}", style="yellow") for warning in benchmark.warnings)


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
    low, high = min(values, default=0.0), max(values, default=0.0)
    heights = (share_of(value - low, high - low) for value in values)
    return "".join(BLOCKS[int(height * (len(BLOCKS) - 1))] for height in heights)


def program(exact: Exact) -> str:
    """What no noise touches, in a line."""
    parts = [f"{exact.flops:.4g} FLOPs"] if exact.flops is not None else []
    parts += [f"{sized(exact.bytes_accessed)} accessed"] if exact.bytes_accessed is not None else []
    cost = ", ".join([*parts, f"{sized(exact.temp_bytes)} temporary"])
    calls = f"{exact.dispatches:g} dispatches"
    compiles = f"{exact.compiles} compiles" if exact.compiles is not None else "compiles vary"
    if exact.programs is None and exact.dispatches > 1:
        text = f"a step: {calls}; its largest program: {cost}"
    else:
        text = f"a step: {cost}, {calls}"
    return f"{text}; {compiles}; program {exact.hlo}"
