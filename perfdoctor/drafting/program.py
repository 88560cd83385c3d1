"""The text of the user's program: what it defines, and how a module of its own gets at that."""

import ast
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfdoctor.drafting.site import Site
from perfdoctor.drafting.slices import DEFINITIONS, bound, sliced

PARSED = ("parse_args", "parse_known_args")
"""Methods by which a program reads its command line."""
IMPORTS = (ast.Import, ast.ImportFrom)
"""Statements that import something."""


@dataclass(frozen=True)
class Program:
    """One file of it."""

    name: str
    """As the user names it."""
    module: str
    """To import it by."""
    folder: str
    """From which it is imported; empty: the working directory."""
    text: str
    tree: ast.Module
    arguments: tuple[str, ...] = ()
    """That it was run with."""

    @property
    def is_guarded(self) -> bool:
        """Whether it can be imported and does not train then."""
        return any(is_guard(each) for each in self.tree.body)

    @property
    def top(self) -> list[ast.stmt]:
        """What it does when it is imported."""
        return [each for each in self.tree.body if not is_guard(each)]


def program_of(
    file: Path, module: str, name: str, arguments: Sequence[str], folder: str = ""
) -> Program:
    """A file; SyntaxError if it is no Python."""
    text = file.read_text(encoding="utf-8", errors="replace")
    tree = ast.parse(text)
    return Program(name, module, folder, text, tree, tuple(arguments))


def is_guard(statement: ast.stmt) -> bool:
    """if __name__ == "__main__":"""
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


@dataclass
class Code:
    """Gets what the draft needs out of a program: imported, or copied."""

    program: Program
    site: Site
    _needed: set[str] = field(default_factory=set)

    def values(self, names: Iterable[str]) -> tuple[list[str], set[str]]:
        """The statements that make these names anew, and the names that can't be made.

        What they need of functions, classes and modules will be in the set-up.
        """
        found = sliced(names, self._before())
        unknown = found.missing - self._known()
        if not unknown:
            self._needed |= {name for each in found.definitions for name in bound(each)}
            self._needed |= found.missing
        return self.sources(found.others), set(unknown)

    def set_up(self, names: Iterable[str]) -> tuple[list[str], set[str]]:
        """The statements that these names need, and all that was needed before; what is missing."""
        local = sliced({*names, *self._needed}, self._before())
        lines = [] if self._is_flat else self._of_module(local.missing)
        lines += self.sources(local.statements)
        return lines, set(local.missing - self._known())

    @property
    def _is_flat(self) -> bool:
        """Whether the loop is in no function."""
        return isinstance(self.site.scope, ast.Module)

    def _before(self) -> list[ast.stmt]:
        """What the scope does before the loop; what it defines, wherever that is."""
        scope, before = self.site.scope, list(self.site.before)
        if isinstance(scope, ast.FunctionDef):
            return [*defaults_of(scope), *before]
        later = [each for each in scope.body if isinstance(each, DEFINITIONS)]
        return before + [each for each in later if each not in before]

    def _known(self) -> set[str]:
        """The names of the module, where the loop is in a function."""
        if self._is_flat:
            return set()
        return {name for each in self.program.top for name in bound(each)}

    def _of_module(self, names: frozenset[str]) -> list[str]:
        """Names of the module: its own imports as they are, the rest imported from it, or copied if
        importing it would train.
        """
        wanted = names & self._known()
        if not self.program.is_guarded and self._trains_on_import():
            found = sliced(wanted, self.program.top)
            return self.sources(found.statements)
        imports = [each for each in self.program.top if isinstance(each, IMPORTS)]
        copied = [each for each in imports if bound(each) & wanted]
        own = sorted(wanted - {name for each in copied for name in bound(each)})
        lines = self.sources(copied)
        if own and self.program.folder:
            lines += ["import sys", f"sys.path.insert(0, {self.program.folder!r})"]
        return lines + ([f"from {self.program.module} import {', '.join(own)}"] if own else [])

    def _trains_on_import(self) -> bool:
        """Whether importing the module calls what holds the loop."""
        scope = self.site.scope
        name = scope.name if isinstance(scope, ast.FunctionDef) else ""
        return any(
            isinstance(node, ast.Call) and name in ast.unparse(node.func)
            for each in self.program.top
            if not isinstance(each, DEFINITIONS)
            for node in ast.walk(each)
        )

    def sources(self, statements: Iterable[ast.stmt]) -> list[str]:
        """The text of each."""
        return [self._source(each) for each in statements]

    def _source(self, statement: ast.stmt) -> str:
        """A statement as it is written, with the arguments that the program was run with."""
        if isinstance(statement, ast.ImportFrom) and statement.level:
            return ast.unparse(absolute(statement, self.program.module))
        if any(is_parsing(node) for node in ast.walk(statement)):
            return ast.unparse(with_arguments(statement, self.program.arguments))
        return segment(self.program.text, statement)


def defaults_of(function: ast.FunctionDef) -> list[ast.stmt]:
    """Its parameters with their defaults, as assignments."""
    every = [*function.args.posonlyargs, *function.args.args]
    pairs = list(
        zip(every[len(every) - len(function.args.defaults) :], function.args.defaults, strict=True)
    )
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    pairs += [(each, default) for each, default in keywords if default is not None]
    return [ast.parse(f"{each.arg} = {ast.unparse(default)}").body[0] for each, default in pairs]


def absolute(statement: ast.ImportFrom, module: str) -> ast.ImportFrom:
    """from .layers import Dense, of package.train: from package.layers import Dense."""
    parents = module.split(".")[: -statement.level]
    name = ".".join([*parents, *([statement.module] if statement.module else [])])
    return ast.ImportFrom(name, statement.names, 0)


def is_parsing(node: ast.AST) -> bool:
    """parser.parse_args(), which reads the arguments of the program that runs."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in PARSED
        and not node.args
    )


def with_arguments(statement: ast.stmt, arguments: Sequence[str]) -> ast.stmt:
    """parse_args([…]), of a copy."""
    copy = ast.parse(ast.unparse(statement)).body[0]
    for node in ast.walk(copy):
        if is_parsing(node) and isinstance(node, ast.Call):
            node.args = [ast.List([ast.Constant(each) for each in arguments], ast.Load())]
    return copy


def segment(text: str, statement: ast.stmt) -> str:
    """Its own lines, with decorators and comments; if it shares them, as Python writes it."""
    lines = text.splitlines()
    decorators = getattr(statement, "decorator_list", [])
    begin = min([statement.lineno, *(each.lineno for each in decorators)])
    own = lines[begin - 1 : statement.end_lineno]
    found = textwrap.dedent("\n".join(own))
    try:
        alone = len(ast.parse(found).body) == 1
    except SyntaxError:
        return ast.unparse(statement)
    same = alone and ast.dump(ast.parse(found).body[0]) == ast.dump(statement)
    return found if same else ast.unparse(statement)


def joined(lines: Sequence[str]) -> str:
    """Statements one below the other, with room around functions and classes."""
    found: list[str] = []
    for each in lines:
        is_block = each.lstrip().startswith(("def ", "class ", "@", "async def "))
        was_block = bool(found) and found[-1].lstrip().startswith(("def ", "class ", "@", "async "))
        room = "\n\n" if found and (is_block or was_block) else ""
        found.append(room + each)
    return "\n".join(found)
