"""What the user's source says of the function that a frame stands in, whatever it is called."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from perfdoctor.observe.digest.source import (
    Function,
    expressions,
    innermost_function,
    parsed,
    statements_of,
)

WRITING = re.compile(
    r"^(?:print|open|write\w*|info|debug|warning|error|emit|flush|dumps?|save\w*|add_scalars?)$"
)
"""Calls by which a function prints, logs or saves, by the last part of their names."""
EXAMPLES = re.compile(r"data|set$|source|sampler|loader|images|sequence", re.IGNORECASE)
"""What the class of a data set is called, or one that it is derived from, in torch, grain and most
programs: Dataset, RandomAccessDataSource, ImageLoader, Sequence."""
OF_MAPPINGS = frozenset({"__setitem__", "__contains__", "keys", "items", "__getattr__"})
"""Methods of a dictionary, a configuration or an array, of which a data set has none."""


@cache
def computes(file: str, line: int) -> bool | None:
    """Whether the function around this line returns a value and writes nothing; None if it can't
    be told.
    """
    tree = parsed(file)
    function = innermost_function(tree, line) if tree is not None else None
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    return returns_a_value(function) and not any(map(WRITING.match, called_in(function)))


def returns_a_value(function: Function) -> bool:
    """Whether it returns something else than None."""
    values = [each.value for each in statements_of(function) if isinstance(each, ast.Return)]
    return any(
        value is not None and not (isinstance(value, ast.Constant) and value.value is None)
        for value in values
    )


def called_in(function: Function) -> Iterator[str]:
    """What it calls: the last part of each name, `write` of `self.file.write`."""
    for statement in statements_of(function):
        for expression in expressions(statement):
            for node in ast.walk(expression):
                if isinstance(node, ast.Call):
                    yield ast.unparse(node.func).rpartition(".")[2]


@cache
def holds_examples(file: str, line: int) -> bool | None:
    """Whether the class around this line is one of a data set, whose items are examples or batches;
    None if it can't be told.

    A data set has a length, or is called like one; it has no methods of a mapping, and is no module
    of a network.
    """
    tree = parsed(file)
    found = class_around(tree, line) if tree is not None else None
    if tree is None or found is None:
        return None
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    family = with_bases(found, classes)
    methods = {name for each in family for name in methods_of(each)}
    bases = {base.rpartition(".")[2] for each in family for base in bases_of(each)}
    if methods & OF_MAPPINGS or any(base.endswith("Module") for base in bases):
        return False
    names = {each.name for each in family} | bases
    return "__len__" in methods or any(map(EXAMPLES.search, names))


def class_around(tree: ast.Module, line: int) -> ast.ClassDef | None:
    """The innermost class whose body holds a line."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def with_bases(found: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """A class and those of the same file that it is derived from."""
    family = [found]
    for each in family:
        nearer = (classes.get(base) for base in bases_of(each))
        family += [base for base in nearer if base is not None and base not in family]
    return family


def methods_of(found: ast.ClassDef) -> set[str]:
    """The names of the methods that its own body defines."""
    return {
        node.name for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def bases_of(found: ast.ClassDef) -> list[str]:
    """The classes that it is derived from, as they are written, without what they are made for:
    `Sequence` of `Sequence[int]`.
    """
    return [
        ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in found.bases
    ]
