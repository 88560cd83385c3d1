"""A Benchmark in Bencher's metric format (BMF)."""

import json
from typing import Any

from perfdoctor.schema.benchmark import Benchmark


def render(benchmark: Benchmark) -> str:
    """One benchmark, named as the target, with all its measures and their bounds."""
    measures: dict[str, Any] = {}
    for each in benchmark.metrics:
        measures[each.name.replace("_", "-")] = {
            "value": each.value,
            **({"lower_value": each.low} if each.low is not None else {}),
            **({"upper_value": each.high} if each.high is not None else {}),
        }
    name = " ".join([benchmark.target.name, *benchmark.target.args])
    return json.dumps({name: measures}, indent=1) + "\n"
