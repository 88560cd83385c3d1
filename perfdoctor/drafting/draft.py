"""The text of a workload module."""

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from perfdoctor.drafting.arrays import MADE
from perfdoctor.drafting.inputs import Input
from perfdoctor.drafting.parts import (
    Part,
    batches_of,
    made_batches,
    made_state,
    names_in,
    state_of,
    step_of,
)
from perfdoctor.drafting.program import Code, Program, joined
from perfdoctor.drafting.site import Site
from perfdoctor.schema.calls import shared_lengths

HEADING = '''"""The workload of {name}, drafted by perfdoctor from what it saw of a run.

    perfdoctor check {module}:workload

{notes}
What else its loop does, reading results, logging or evaluation say, is not in here.
"""

'''
"""What a draft begins with."""
WIDTH = 96
"""Columns of the notes in it."""
USED = {"jax.": "import jax", "jax.numpy.": "import jax.numpy", "numpy.": "import numpy"}
"""What the draft itself uses, and how it comes in, whatever the program calls it."""


@dataclass(frozen=True)
class Choice:
    """Which parts are taken from the program, rather than made up."""

    state: bool
    batches: bool


CHOICES = (Choice(True, True), Choice(True, False), Choice(False, True), Choice(False, False))
"""The best one first."""


@dataclass(frozen=True)
class Draft:
    """A workload module."""

    text: str
    left: tuple[str, ...]
    """What the user has to complete."""


def drafted(
    program: Program, site: Site, inputs: Sequence[Input], choice: Choice, module: str
) -> Draft:
    """The module of one call of a step. `module`: the name that it is to have."""
    code = Code(program, site)
    parts = parts_of(code, inputs, choice)
    fixed = [each.text for each in inputs if each.part == "fixed"]
    wanted = {name for text in (ast.unparse(site.call.func), *fixed) for name in names_in(text)}
    set_up, missing = code.set_up(wanted)
    left = [f"{name}: {part.note}" for name, part in parts.items() if part.is_left]
    left += [f"{name}: {program.name} makes it in a way not known" for name in sorted(missing)]
    made = MADE if any("made(" in line for part in parts.values() for line in part.body) else ""
    whole = class_of(program, parts, batch_size(inputs))
    imports = [line for use, line in USED.items() if use in made + whole]
    blocks = [
        HEADING.format(name=program.name, module=module, notes=notes_of(parts, left))
        + in_order([*imports, *set_up]),
        "\n".join(f"{name} = None  # LEFT TO DO" for name in sorted(missing)),
        made,
        whole,
        "workload = Workload()",
    ]
    return Draft("\n\n\n".join(block for block in blocks if block) + "\n", tuple(left))


def notes_of(parts: dict[str, Part], left: Sequence[str]) -> str:
    """For the docstring: what comes from where, and what is left to do."""
    notes = [wrapped(f"{name}: {part.note}") for name, part in parts.items()]
    return "\n".join(
        [*notes, *([""] if left else []), *(wrapped(f"LEFT TO DO: {x}") for x in left)]
    )


def in_order(statements: Sequence[str]) -> str:
    """Imports first, those of the future before all others; from the program once it is found."""
    found = list(dict.fromkeys(statements))
    path = next((n for n, each in enumerate(found) if each.startswith("sys.path.")), len(found))
    imports = [each for each in found[:path] if each.startswith(("import ", "from "))]
    imports.sort(key=lambda each: "__future__" not in each)
    rest = [each for each in found if each not in imports]
    return "\n\n".join(text for text in ("\n".join(imports), joined(rest)) if text)


def parts_of(code: Code, inputs: Sequence[Input], choice: Choice) -> dict[str, Part]:
    """By the name of the function."""
    state = [each for each in inputs if each.part == "state"]
    batch = [each for each in inputs if each.part == "batch"]
    init = state_of(code, state) if choice.state else None
    batches = batches_of(code, batch) if choice.batches else None
    return {
        "init": init or made_state(state),
        "step": step_of(code.site, inputs, code.program.name),
        "batches": batches or made_batches(batch),
    }


def class_of(program: Program, parts: dict[str, Part], size: int | None) -> str:
    """The class, with its functions."""
    lines = ["class Workload:", f'    """Of {program.name}."""', ""]
    lines += [f"    batch_size = {size}", ""] if size else []
    for name, arguments in (("init", ""), ("step", ", state, batch"), ("batches", "")):
        body = textwrap.indent("\n".join(parts[name].body), " " * 8)
        lines += [f"    def {name}(self{arguments}):", body, ""]
    return "\n".join(lines).rstrip()


def batch_size(inputs: Sequence[Input]) -> int | None:
    """Examples of a batch, if its arrays have an axis in common."""
    leaves = [leaf for each in inputs if each.part == "batch" for leaf in each.leaves]
    common = shared_lengths([(leaf.shape, leaf.bytes) for leaf in leaves if leaf.shape])
    return common[0] if common else None


def wrapped(text: str) -> str:
    """For the docstring."""
    return (
        textwrap.fill(text, WIDTH, subsequent_indent="    ")
        .replace("\\", "\\\\")
        .replace('"""', "'''")
    )
