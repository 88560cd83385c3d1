"""Where a script calls its step: found in its text by the function's name."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Loop = ast.For | ast.While
Scope = ast.FunctionDef | ast.Module
LAMBDA = "<lambda>"
"""The name that Python gives to a function without one."""


@dataclass(frozen=True)
class Turn:
    """One of the loops around the call, and what it does before it comes to the next one."""

    loop: Loop
    before: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class Site:
    """The call of a step."""

    call: ast.Call
    statement: ast.stmt
    scope: Scope
    """The function that holds the loop, or the module."""
    before: tuple[ast.stmt, ...]
    """What the scope does before the outermost loop."""
    turns: tuple[Turn, ...]
    """The loops around the call, the outermost first."""

    @property
    def targets(self) -> list[str]:
        """What the result is assigned to, as it is written."""
        if not isinstance(self.statement, ast.Assign) or self.statement.value is not self.call:
            return []
        target = self.statement.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        return [ast.unparse(each) for each in parts]


def site_of(function: str, tree: ast.Module) -> Site | None:
    """The first call of the function in a loop; without one, None."""
    name = function.rpartition(".")[2]
    callees = {name, *aliases(name, tree)}
    found = (site for scope in scopes(tree) for site in sites(scope, callees))
    return next((site for site in found if site.turns and not is_inside(site.scope, name)), None)


def is_inside(scope: Scope, name: str) -> bool:
    """Whether a scope is the function itself."""
    return isinstance(scope, ast.FunctionDef) and scope.name == name


def aliases(name: str, tree: ast.Module) -> Iterator[str]:
    """The other names of what is made of a function: train = jax.jit(step, …)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            inner = list(ast.walk(node.value))
            taken = {last_name(each) for each in inner if isinstance(each, ast.expr)}
            is_lambda = name == LAMBDA and any(isinstance(each, ast.Lambda) for each in inner)
            if "jit" in ast.unparse(node.value.func) and (name in taken or is_lambda):
                yield from (last for each in node.targets if (last := last_name(each)))


def last_name(expression: ast.expr) -> str | None:
    """Of self.train.step: step."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else None


def scopes(tree: ast.Module) -> Iterator[Scope]:
    """The module, and each function in it."""
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def sites(scope: Scope, callees: set[str]) -> Iterator[Site]:
    """The calls in a scope itself, not in the functions that it defines."""
    yield from in_block(scope.body, scope, callees, (), ())


def in_block(
    block: Sequence[ast.stmt],
    scope: Scope,
    callees: set[str],
    before: tuple[ast.stmt, ...],
    turns: tuple[Turn, ...],
) -> Iterator[Site]:
    """The calls in a block. `before`, `turns`: see `Site`; of what is around it."""
    for place, statement in enumerate(block):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        earlier = tuple(block[:place])
        here = (*before, *earlier) if not turns else before
        inner = (*turns[:-1], with_more(turns[-1], earlier)) if turns else ()
        for call in calls_in(statement):
            if last_name(call.func) in callees:
                yield Site(call, statement, scope, here, inner)
        if isinstance(statement, ast.For | ast.While):
            inner = (*inner, Turn(statement, ()))
        for name in ("body", "orelse", "finalbody"):
            yield from in_block(getattr(statement, name, []), scope, callees, here, inner)


def with_more(turn: Turn, statements: tuple[ast.stmt, ...]) -> Turn:
    """A turn that does some more."""
    return Turn(turn.loop, (*turn.before, *statements))


def calls_in(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in what a statement itself evaluates."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from (node for node in ast.walk(child) if isinstance(node, ast.Call))


def parameters_of(function: str, tree: ast.Module) -> list[str]:
    """The names of its positional parameters, where it is defined; empty if it is not here."""
    name = function.rpartition(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return []
