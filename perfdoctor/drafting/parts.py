"""The functions of a draft: as the program has them, or made up."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from perfdoctor.drafting.arrays import source_of
from perfdoctor.drafting.inputs import Input
from perfdoctor.drafting.program import Code, joined
from perfdoctor.drafting.site import Site, Turn
from perfdoctor.drafting.slices import bound, read, sliced
from perfdoctor.schema.calls import Leaf

INDENT = "    "


@dataclass(frozen=True)
class Part:
    """The body of a function, and what is to be said of it."""

    body: tuple[str, ...]
    note: str
    is_left: bool = False
    """Whether the user has to complete it."""


def step_of(site: Site, inputs: Sequence[Input], name: str) -> Part:
    """The call as it is written, with the names of the draft. `name`: of the program."""
    state = [each for each in inputs if each.part == "state"]
    batch = [each for each in inputs if each.part == "batch"]
    note = f"the call of {ast.unparse(site.call.func)} at {name}:{site.call.lineno}."
    calling = f"{ast.unparse(site.call.func)}({', '.join(each.passed for each in inputs)})"
    before = (*unpacked("state", state), *unpacked("batch", batch))
    targets = targets_of(site, state)
    if targets:
        of_state = {each.name for each in state}
        metrics = [each for each in targets if each not in of_state]
        told = metrics[0] if len(metrics) == 1 else f"({', '.join(metrics)})"
        calls = f"{', '.join(targets)} = {calling}"
        return Part((*before, calls, f"return {packed(state)}, {told}"), note)
    new = [line for each in state if (line := rebuilt(each))]
    if len(new) == len(state):
        told = "leaves = jax.tree.leaves(result)"
        lines = (f"result = {calling}", *([told] if state else []), *new)
        return Part((*before, *lines, f"return {packed(state)}, result"), note)
    open_end = unfinished("return the next state, and the metrics: (state, metrics)")
    return Part((*before, f"result = {calling}", *open_end), note, is_left=True)


def targets_of(site: Site, state: Sequence[Input]) -> list[str] | None:
    """The names that its results are assigned to; None if not all of the state is among them."""
    names = {each.text: each.name for each in state}
    found = [
        names.get(text, text if text.isidentifier() else f"result_{place}")
        for place, text in enumerate(site.targets)
    ]
    return found if found and set(names.values()) <= set(found) else None


def rebuilt(each: Input) -> str | None:
    """The line that makes one part of the next state of the call's results, as they were seen to
    come back; None if that was not seen.
    """
    places = [
        leaf.source[1] if leaf.source and leaf.source[0] == 0 else None for leaf in each.leaves
    ]
    if not places or None in places:
        return None
    values = ", ".join(f"leaves[{place}]" for place in places)
    return f"{each.name} = jax.tree.unflatten(jax.tree.structure({each.name}), [{values}])"


def unpacked(whole: str, parts: Sequence[Input]) -> list[str]:
    """The line that takes the parts out of the state, or of the batch."""
    names = [each.name for each in parts]
    return [] if names in ([], [whole]) else [f"{', '.join(names)} = {whole}"]


def packed(parts: Sequence[Input]) -> str:
    """The parts in one."""
    names = [each.name for each in parts]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def state_of(code: Code, state: Sequence[Input]) -> Part | None:
    """As the program makes it before its loop; None if that can't be told."""
    statements, missing = code.values({name for each in state for name in names_in(each.text)})
    if missing:
        return None
    value = ", ".join(each.text for each in state) or "()"
    note = f"as {code.program.name} makes the state before its loop."
    return Part((*joined(statements).splitlines(), f"return {value}"), note)


def batches_of(code: Code, batch: Sequence[Input]) -> Part | None:
    """As the program's loop comes to what is new in each step; None if that can't be told."""
    site = code.site
    wanted = {name for each in batch for name in names_in(each.text)}
    results = {name for target in site.targets for name in names_in(target)}
    body = [f"yield {', '.join(each.text for each in batch) or '()'}"]
    loops = False
    for turn in reversed(site.turns):
        found = sliced(wanted, turn.before)
        wanted = (wanted | found.missing) - {
            name for each in found.statements for name in bound(each)
        }
        head = head_of(turn, wanted)
        if head or found.statements:
            loops = True
            body = [head or "while True:", *indented([*code.sources(found.statements), *body])]
        if head and isinstance(turn.loop, ast.For):
            wanted = (wanted - names_in(ast.unparse(turn.loop.target))) | read(turn.loop.iter)
    statements, missing = code.values(wanted)
    if missing or results & wanted:
        return None  # or it comes from what the step returns
    body = body if loops else ["while True:", *indented(body)]
    note = f"as the loop of {code.program.name} comes to what is new in each step."
    return Part((*joined(statements).splitlines(), *body), note)


def head_of(turn: Turn, wanted: set[str]) -> str:
    """The head of a loop over data; empty for one that only counts, whose end is no matter here."""
    loop = turn.loop
    if isinstance(loop, ast.For) and names_in(ast.unparse(loop.target)) & wanted:
        return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}:"
    return ""


def made_state(state: Sequence[Input]) -> Part:
    """Arrays of the shapes that were seen."""
    values = [source_of(each.leaves) for each in state]
    if None in values:
        why = "the state could not be told from the program, nor made up of its shapes"
        return Part(tuple(unfinished(f"make the state: {listed(state)}")), f"{why}.", is_left=True)
    assigned = [f"{each.name} = {value}" for each, value in zip(state, values, strict=True)]
    note = "MADE UP: arrays of the shapes that were seen, not the program's own values."
    return Part((*assigned, f"return {packed(state)}"), note)


def made_batches(batch: Sequence[Input]) -> Part:
    """Arrays of the shapes that were seen, without an end."""
    values = [source_of(each.leaves) for each in batch]
    if None in values:
        why = "the batches could not be told from the program, nor made up of their shapes"
        body = (*unfinished(f"yield the batches: {listed(batch)}"), "yield")
        return Part(body, f"{why}.", is_left=True)
    assigned = [f"{each.name} = {value}" for each, value in zip(batch, values, strict=True)]
    value = ", ".join(each.name for each in batch) or "()"
    note = (
        "MADE UP: arrays of the shapes that were seen. What the program's own loading costs is "
        "not in it."
    )
    return Part((*assigned, "while True:", *indented([f"yield {value}"])), note)


def listed(inputs: Sequence[Input]) -> str:
    """What was seen of them: params['w'] float32[3, 4]."""
    return ", ".join(told(leaf) for each in inputs for leaf in each.leaves) or packed(inputs)


def told(leaf: Leaf) -> str:
    """An array by its path, type and shape."""
    return f"{leaf.argument} {leaf.dtype}{list(leaf.shape)}"


def unfinished(what: str) -> list[str]:
    """A line that says what is left to do, when it is run."""
    return [f"raise NotImplementedError({what!r})"]


def names_in(text: str) -> set[str]:
    """The names that an expression reads."""
    return read(ast.parse(text, mode="eval").body)


def indented(lines: Sequence[str]) -> list[str]:
    """Each of their lines one step to the right."""
    return [INDENT + line if line else line for each in lines for line in each.splitlines()]
