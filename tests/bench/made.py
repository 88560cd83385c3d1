"""Launches and benchmarks made by hand."""

from typing import Any

from perfdoctor.schema.benchmark import Benchmark, Exact, Fingerprint, LaunchRecord, Metric, Recipe
from perfdoctor.schema.report import ReportTarget

EXACT = Exact(
    flops=2e6,
    bytes_accessed=2.0**21,
    temp_bytes=2**20,
    hlo="0123456789abcdef",
    compiles=7,
    dispatches=1.0,
)
HERE = Fingerprint(
    cpu="EPYC",
    cores=2.0,
    vector_sets=("avx2", "avx512f"),
    accelerators=(),
    driver=None,
    python="3.11",
    jaxlib="0.10.2",
    variables={},
)


def launch(**changes: Any) -> LaunchRecord:
    """A good one, but for the changes."""
    usual: dict[str, Any] = {
        "steps": 600,
        "mean_ms": 5.0,
        "median_ms": 4.8,
        "p95_ms": 6.0,
        "cpu_ms": 8.0,
        "compiles": 7,
        "compile_s": 1.5,
        "first_step_s": 3.0,
        "peak_rss_bytes": 400 * 2**20,
        "steady": True,
        "other_cores": 0.0,
        "throttled_ms": 0.0,
        "shape_ms": (5.0, 4.0, 6.0),
    }
    return LaunchRecord(**{**usual, **changes})


def benchmark(*launches: LaunchRecord, metrics: tuple[Metric, ...] = ()) -> Benchmark:
    """Of these launches."""
    return Benchmark(
        schema="perfdoctor.benchmark/1",
        perfdoctor="0.1.0",
        created="2026-01-01T00:00:00Z",
        target=ReportTarget(kind="script", name="train.py", args=()),
        recipe=Recipe(name="train.py", module=None, arguments=(), workload=None),
        fingerprint=HERE,
        environment={"backend": "cpu", "packages": {"jax": "0.10.2"}},
        source=None,
        launches=launches,
        complete=True,
        metrics=metrics,
        exact=EXACT,
        warnings=(),
    )
