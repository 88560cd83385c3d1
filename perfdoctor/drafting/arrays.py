"""Values that are made up: the source text of a tree of arrays, as the probe saw their shapes."""

import re
from collections.abc import Sequence
from typing import Any

from perfdoctor.schema.calls import Leaf

TOKEN = re.compile(r"\['([^']*)'\]|\[(\d+)\]")
"""A key, or an index, in the path of an argument's tree."""
MADE = '''
def made(shape, dtype):
    """Values that are made up: normally distributed; zeros, if they are integers."""
    kind = jax.numpy.dtype(dtype)
    if jax.numpy.issubdtype(kind, jax.numpy.inexact):
        return numpy.random.default_rng(0).standard_normal(shape).astype(kind)
    return numpy.zeros(shape, kind)
'''.strip()
"""The helper of a draft that makes up values which were not seen."""


def source_of(leaves: Sequence[Leaf]) -> str | None:
    """An expression for one parameter of the step; None if it is of a class that is not known."""
    tree: Any = None
    for leaf in leaves:
        tokens = tokens_of(leaf.argument)
        if tokens is None:
            return None
        tree = placed(tree, tokens, value_of(leaf))
    return None if tree is None else written(tree)


def tokens_of(argument: str) -> list[str | int] | None:
    """Of params['w'][0]: w, 0; None where something else stands there, an attribute say."""
    path = re.sub(r"^\w+", "", argument)
    if TOKEN.sub("", path):
        return None
    return [int(match[2]) if match[2] else match[1] for match in TOKEN.finditer(path)]


def placed(tree: Any, tokens: Sequence[str | int], value: str) -> Any:
    """The tree with a value at its place; dicts stand for sequences too."""
    if not tokens:
        return value
    inner = tree if isinstance(tree, dict) else {}
    first, *rest = tokens
    return {**inner, first: placed(inner.get(first), rest, value)}


def written(tree: Any) -> str:
    """As Python has it: lists for what is numbered."""
    if not isinstance(tree, dict):
        return str(tree)
    if all(isinstance(key, int) for key in tree):
        parts = [written(tree.get(n, "None")) for n in range(max(tree) + 1)]
        return f"[{', '.join(parts)}]"
    return "{" + ", ".join(f"{key!r}: {written(value)}" for key, value in tree.items()) + "}"


def value_of(leaf: Leaf) -> str:
    """One array, number or key."""
    if leaf.kind == "key":
        return (
            "jax.random.key(0)"
            if not leaf.shape
            else f"jax.random.split(jax.random.key(0), {leaf.shape})"
        )
    if leaf.kind == "scalar":
        return {"bool": "True", "int": "0", "float": "0.0"}.get(
            leaf.dtype.rstrip("0123456789"), "0"
        )
    made = f"made({leaf.shape}, {leaf.dtype!r})"
    return f"jax.device_put({made})" if leaf.kind == "device" else made
