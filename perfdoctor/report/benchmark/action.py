"""A Benchmark for github-action-benchmark: its tool `customSmallerIsBetter`."""

import json

from perfdoctor.report.benchmark.words import LABELS
from perfdoctor.schema.benchmark import Benchmark


def render(benchmark: Benchmark) -> str:
    """The metrics of which less is better."""
    entries = [
        {
            "name": f"{benchmark.target.name}: {LABELS.get(each.name, each.name)}",
            "unit": each.unit,
            "value": each.value,
            **({"range": f"{each.low:.4g} to {each.high:.4g}"} if each.low and each.high else {}),
        }
        for each in benchmark.metrics
        if each.better == "lower"
    ]
    return json.dumps(entries, indent=1) + "\n"
