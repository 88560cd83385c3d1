"""The Benchmark as JSON: the contract `perfdoctor.benchmark/1`."""

import msgspec

from perfdoctor.schema.benchmark import Benchmark


def render(benchmark: Benchmark) -> str:
    """All of it, indented."""
    return msgspec.json.format(msgspec.json.encode(benchmark), indent=2).decode() + "\n"
