"""Reads the user's source: which lines of a function prepare what its step is called with.

A backward slice: from the arguments of the call, through the assignments that they come from, to
the head of the `for` that iterates over the data. What the call itself returns (the state, the
loss) is no preparation.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Lines = frozenset[int]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


@dataclass(frozen=True)
class Caller:
    """The lines of a function that calls the step, or something that does."""

    calling: Lines
    """Lines of the statements that contain the call."""
    feeding: Lines
    """Lines of the statements that prepare its arguments."""


NOWHERE = Caller(frozenset(), frozenset())
"""What is known of a function whose source can't be read."""


@cache
def parsed(file: str) -> ast.Module | None:
    """A file of the program; None if it can't be read."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@cache
def caller(file: str, line: int) -> Caller:
    """The function around this line, which is a line of the call; empty if it can't be read."""
    tree = parsed(file)
    try:
        return NOWHERE if tree is None else caller_in(tree, line)
    except RecursionError:  # of an expression that is very deep
        return NOWHERE


@cache
def is_generator(file: str, line: int) -> bool:
    """Whether the function around this line yields; False if it can't be read."""
    tree = parsed(file)
    return tree is not None and any(
        isinstance(node, ast.Yield | ast.YieldFrom)
        for statement in statements_of(innermost_function(tree, line))
        for expression in expressions(statement)
        for node in ast.walk(expression)
    )


@cache
def sleeps(file: str, line: int) -> bool:
    """Whether a statement in this line calls a function named sleep; False if it can't be read."""
    tree = parsed(file)
    return tree is not None and any(
        callee.rpartition(".")[2] == "sleep"
        for statement in statements_of(innermost_function(tree, line))
        if line in head(statement)
        for callee in callees_of(statement)
    )


def caller_in(tree: ast.Module, line: int) -> Caller:
    """The same, of a file that has been read."""
    function = innermost_function(tree, line)
    statements = list(statements_of(function))
    here = [each for each in statements if line in head(each)]
    callees = {callee for each in here for callee in callees_of(each, line)}
    calls = [each for each in statements if callees & set(callees_of(each))] or here
    return Caller(
        calling=frozenset(line for each in calls for line in head(each)),
        feeding=feeding(statements, calls),
    )


def innermost_function(tree: ast.Module, line: int) -> Function:
    """The function whose body holds a line; the module itself if none does."""
    found: Function = tree
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body[0].lineno <= line <= (node.end_lineno or 0)
            and (found is tree or node.lineno >= getattr(found, "lineno", 0))
        ):
            found = node
    return found


def statements_of(node: ast.AST) -> Iterator[ast.stmt]:
    """Those of a function in their order, but not of functions and classes within it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.expr):
            yield from statements_of(child)


def expressions(statement: ast.stmt) -> list[ast.expr]:
    """What a statement itself evaluates: of a loop its head, not its body."""
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)] + [
        item.context_expr
        for item in getattr(statement, "items", [])
        if isinstance(item, ast.withitem)
    ]


def head(statement: ast.stmt) -> range:
    """The lines of a statement without the body that it may have."""
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return range(statement.lineno, max(statement.lineno + 1, body[0].lineno))
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def callees_of(statement: ast.stmt, line: int | None = None) -> Iterator[str]:
    """What a statement calls, as it is written; of several on a line, the outermost."""
    for expression in expressions(statement):
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and (
                line is None or node.lineno <= line <= (node.end_lineno or 0)
            ):
                yield ast.unparse(node.func)
                if line is not None:
                    return


def feeding(statements: list[ast.stmt], calls: list[ast.stmt]) -> Lines:
    """The lines of the statements that bind what the calls read."""
    made = {name for call in calls for name in bound(call)}
    wanted = {name for call in calls for name in read(call)} - made
    found: set[ast.stmt] = set()
    grew = True
    while grew:
        grew = False
        for statement in statements:
            if statement in found or statement in calls or not wanted & set(bound(statement)):
                continue
            found.add(statement)
            wanted |= set(read(statement)) - made
            grew = True
    return frozenset(line for each in found if in_loop(each, statements) for line in head(each))


def in_loop(statement: ast.stmt, statements: list[ast.stmt]) -> bool:
    """Whether a statement is run again and again: what is prepared once is no loading."""
    loops = [each for each in statements if isinstance(each, ast.For | ast.While | ast.AsyncFor)]
    if not loops:
        return True  # the loop is in a function that calls this one
    return any(each.lineno <= statement.lineno <= (each.end_lineno or 0) for each in loops)


def bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement assigns to, attributes too: `x`, `self.batch`."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        targets = [statement.target]
    elif isinstance(statement, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in statement.items if item.optional_vars]
    for target in targets:
        yield from names(target, ast.Store)
    for expression in expressions(statement):
        for node in ast.walk(expression):
            if isinstance(node, ast.NamedExpr):
                yield node.target.id


def read(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement evaluates."""
    for expression in expressions(statement):
        yield from names(expression, ast.Load)


def names(expression: ast.expr, context: type[ast.expr_context]) -> Iterator[str]:
    """Names and dotted names in an expression, as they are written."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, context):
            yield ast.unparse(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, context):
            yield from names(node.value, ast.Load)
