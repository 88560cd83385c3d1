"""The JSON Schemas of the files that perfdoctor writes, made of the very types that write them."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules
from typing import Any

import msgspec

from perfdoctor import schema
from perfdoctor.schema.benchmark import BENCHMARK_SCHEMA, Benchmark
from perfdoctor.schema.difference import DIFFERENCE_SCHEMA, Difference
from perfdoctor.schema.observation import OBSERVATION_SCHEMA, Observation
from perfdoctor.schema.report import REPORT_SCHEMA, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The version of JSON Schema that is written."""
KINDS: dict[str, tuple[type, str]] = {
    "report": (Report, REPORT_SCHEMA),
    "observation": (Observation, OBSERVATION_SCHEMA),
    "benchmark": (Benchmark, BENCHMARK_SCHEMA),
    "difference": (Difference, DIFFERENCE_SCHEMA),
}
"""By the name for the command line: the type, and what stands in its key `schema`."""


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of one of KINDS, with what the code says of each key."""
    told, name = KINDS[kind]
    made = msgspec.json.schema(told)
    for (owner, field), text in described().items():
        properties = made["$defs"].get(owner, {}).get("properties", {})
        if field in properties:
            properties[field]["description"] = text
    return {"$schema": DIALECT, "title": name, **made}


def described() -> dict[tuple[str, str], str]:
    """What stands below each field, by its class and name."""
    found = {}
    for module in iter_modules(schema.__path__, f"{schema.__name__}."):
        tree = ast.parse(inspect.getsource(import_module(module.name)) or "")
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found.update({(node.name, field): text for field, text in documented(node)})
    return found


def documented(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The fields of a class that have a text below them, and that text in one line."""
    for field, below in pairwise(owner.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(below.value.value).split())
