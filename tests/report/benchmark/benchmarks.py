"""A Benchmark with all that a page can show."""

from msgspec.structs import replace

from perfdoctor.schema.benchmark import (
    Benchmark,
    Compared,
    Comparison,
    ExactChange,
    LevelChange,
    Metric,
    Trend,
)
from tests.bench.made import benchmark, launch

BY_PAIR = (0.07, 0.09, 0.08, 0.06, 0.10)
CONTROLS = (0.01, -0.01, 0.0, 0.02, -0.005)
VALUES = (*(5.0 + 0.01 * (index % 3) for index in range(12)), *(6.0,) * 8)


def trend() -> Trend:
    """A step time that got a fifth longer once."""
    return Trend(
        metric="step_time",
        values=VALUES,
        created=tuple(f"2026-01-{day:02}T00:00:00Z" for day in range(1, len(VALUES) + 1)),
        commits=tuple(f"{day:040x}" for day in range(len(VALUES))),
        changes=(LevelChange(index=12, ratio=1.2),),
    )


def compared() -> Benchmark:
    """Slower than its baseline, in live pairs, with a history."""
    step = Compared(
        name="step_time",
        gated=True,
        verdict="regressed",
        change=0.08,
        low=0.05,
        high=0.11,
        visible=0.04,
        by_pair=BY_PAIR,
        control_by_pair=CONTROLS,
    )
    memory = replace(step, name="peak_memory", gated=False, verdict=None, change=0.01, low=-0.02)
    comparison = Comparison(
        against="git:main",
        how="live pairs",
        threshold=0.05,
        verdict="regressed",
        summary="step 8.0% longer (+5.0% to +11.0%)",
        pairs=5,
        seconds=61.0,
        metrics=(step, memory),
        exact=(ExactChange(name="flops", before=100.0, after=112.0),),
        causes=("host-sync: the step is waited for at train.py:84",),
    )
    metrics = (
        Metric(name="step_time", unit="ms", better="lower", value=5.0, low=4.9, high=5.1),
        Metric(name="peak_memory", unit="bytes", better="lower", value=4e8),
    )
    found = benchmark(launch(), launch(shape_ms=(6.0, 5.0, 5.5)), metrics=metrics)
    return replace(found, comparison=comparison, trends=(trend(),), warnings=("a busy machine",))
