"""Which statements of a program make the values of some names: a slice of its text, never run."""

import ast
import builtins
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

BUILTINS = frozenset(dir(builtins))
"""Names that need no definition."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
"""What may stand anywhere, and is the same whenever it is run."""


@dataclass(frozen=True)
class Slice:
    """The statements that make some names, in order, and the names that none of them makes."""

    statements: tuple[ast.stmt, ...]
    missing: frozenset[str]

    @property
    def definitions(self) -> tuple[ast.stmt, ...]:
        """Functions, classes and imports."""
        return tuple(each for each in self.statements if isinstance(each, DEFINITIONS))

    @property
    def others(self) -> tuple[ast.stmt, ...]:
        """What makes values."""
        return tuple(each for each in self.statements if not isinstance(each, DEFINITIONS))


def sliced(wanted: Iterable[str], statements: Sequence[ast.stmt]) -> Slice:
    """All statements that bind or change the wanted names, or a name that one of these reads."""
    names, found = set(wanted), set[ast.stmt]()
    grew = True
    while grew:
        grew = False
        for statement in statements:
            if statement not in found and names & (bound(statement) | changed(statement)):
                found.add(statement)
                names |= read(statement)
                grew = True
    made = {name for statement in found for name in bound(statement)}
    ordered = tuple(each for each in statements if each in found)
    return Slice(ordered, frozenset(names - made - BUILTINS))


@cache
def table_of(statement: ast.stmt) -> symtable.SymbolTable | None:
    """Python's own account of its names; None where it can't stand by itself."""
    try:
        return symtable.symtable(ast.unparse(statement), "statement", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None


def bound(statement: ast.stmt) -> set[str]:
    """The names that a statement binds, with all that is in it."""
    table = table_of(statement)
    if table is None:
        return set()
    return {
        each.get_name()
        for each in table.get_symbols()
        if each.is_assigned() or each.is_imported() or each.is_namespace()
    }


def read(statement: ast.stmt | ast.expr) -> set[str]:
    """The names that a statement reads of what is around it; in its functions too."""
    if isinstance(statement, ast.expr):
        statement = ast.Expr(statement)
    table = table_of(statement)
    if table is None:
        return set()
    found = {each.get_name() for each in table.get_symbols() if each.is_referenced()}
    if isinstance(statement, ast.AugAssign):
        found |= {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
    return found | globals_of(table)


def globals_of(table: symtable.SymbolTable) -> set[str]:
    """The names that functions and classes within it take from around it."""
    found: set[str] = set()
    for child in table.get_children():
        found |= {each.get_name() for each in child.get_symbols() if each.is_global()}
        found |= globals_of(child)
    return found


def changed(statement: ast.stmt) -> set[str]:
    """The names whose objects a statement changes: x[0] = …, x.y = …, x.append(…)."""
    places: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        places = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        places = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        places = [statement.value.func]
    return {
        root
        for place in places
        if isinstance(place, ast.Subscript | ast.Attribute) and (root := root_of(place))
    }


def root_of(place: ast.expr) -> str | None:
    """The name that an attribute or a part of it hangs on."""
    while isinstance(place, ast.Subscript | ast.Attribute):
        place = place.value
    return place.id if isinstance(place, ast.Name) else None
