"""The inputs of a step's call: which is state, which is a batch, and which stays the same."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perfdoctor.drafting.site import Site
from perfdoctor.schema.calls import Call, Leaf

Part = Literal["state", "batch", "fixed"]
PARAMETER = re.compile(r"\w+")
"""The name of a parameter, before the path in its tree."""


@dataclass(frozen=True)
class Input:
    """One of the call's arguments, as it is written."""

    part: Part
    text: str
    """The expression, without a star."""
    name: str
    """What it is called in the draft."""
    keyword: str | None = None
    stars: str = ""
    """Before it: of *batch, of **options."""
    leaves: tuple[Leaf, ...] = ()
    """What the probe saw of it."""

    @property
    def passed(self) -> str:
        """As the draft's call passes it; what stays the same, as it is written."""
        value = self.text if self.part == "fixed" else self.name
        if self.stars:
            return f"{self.stars}{value}"
        return f"{self.keyword}={value}" if self.keyword else value


def inputs_of(site: Site, call: Call | None, parameters: Sequence[str]) -> list[Input]:
    """Of a call in the text, and of the same call as it was seen; None: it was not.

    `parameters`: of the function, where its definition was found.
    """
    seen = by_parameter(call) if call is not None else {}
    names = list(parameters) or list(seen)
    has_new = any(leaf.role == "new" for leaves in seen.values() for leaf in leaves)
    found: list[Input] = []
    for place, (keyword, value, stars) in enumerate(arguments_of(site.call)):
        text = ast.unparse(value)
        own = [keyword] if keyword else names[place : None if stars else place + 1]
        leaves = tuple(leaf for name in own for leaf in seen.get(name, ()))
        part = part_of(leaves, has_new) if seen else part_by_text(text, site)
        if part == "fixed" and part_by_text(text, site) == "batch":
            part = "batch"  # no array, a static argument say, but another one in each step
        fallback = own[0] if own and not stars else f"argument_{place}"
        name = text if text.isidentifier() else unused(fallback, found)
        found.append(Input(part, text, name, keyword, stars, leaves))
    return found


def arguments_of(call: ast.Call) -> Iterator[tuple[str | None, ast.expr, str]]:
    """Each with its keyword, if it has one, and the stars before it."""
    for each in call.args:
        if isinstance(each, ast.Starred):
            yield None, each.value, "*"
        else:
            yield None, each, ""
    for keyword in call.keywords:
        yield keyword.arg, keyword.value, "" if keyword.arg else "**"


def by_parameter(call: Call) -> dict[str, list[Leaf]]:
    """The leaves of each parameter, in their order."""
    found: dict[str, list[Leaf]] = {}
    for leaf in call.leaves:
        name = PARAMETER.match(leaf.argument)
        found.setdefault(name[0] if name else leaf.argument, []).append(leaf)
    return found


def part_of(leaves: Sequence[Leaf], has_new: bool) -> Part:
    """By the roles that the probe told; where nothing is new, what comes as arrays is the batch."""
    roles = {leaf.role for leaf in leaves}
    if "state" in roles:
        return "state"
    if "new" in roles:
        return "batch"
    is_batch = not has_new and any(leaf.shape for leaf in leaves)
    return "batch" if is_batch else "fixed"


def part_by_text(text: str, site: Site) -> Part:
    """Where nothing was seen: the call replaces the state, and the loop names the batch."""
    if text in site.targets:
        return "state"
    names = {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}
    made = {
        node.id
        for turn in site.turns
        for part in (turn.loop, *turn.before)
        for node in ast.walk(part)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return "batch" if names & made else "fixed"


def unused(name: str, others: Sequence[Input]) -> str:
    """A name that no other input has."""
    taken = {each.name for each in others}
    while name in taken:
        name += "_"
    return name
