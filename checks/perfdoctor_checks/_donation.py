"""State that a step may not overwrite, and donations that can't be used."""

import re

from perfdoctor import Argument, Change, Fix, Leaf, Observation, Program, bytes_of
from perfdoctor_checks._limits import FEWEST_OPERATIONS, MIB
from perfdoctor_checks._reasons import Reason

SHAPE = re.compile(r"\b([a-z]+\d+)\[([\d,]*)\]")  # f32[8,64]
UNUSABLE = "donated buffers were not usable"  # a warning of jax


def not_donated(observation: Observation) -> list[Reason]:
    """A state of some size that the step may not overwrite."""
    return of_the_program(observation) or of_several_calls(observation)


def of_several_calls(observation: Observation) -> list[Reason]:
    """Of a step of several calls: what one of them replaces itself, if it donates nothing."""
    calls = observation.calls.calls if observation.calls is not None else ()
    kept = {
        call.function: sum(leaf.bytes for leaf in call.leaves if is_replaced(leaf, place))
        for place, call in enumerate(calls)
        if not any(leaf.donated for leaf in call.leaves)
    }
    function = max(kept, key=kept.__getitem__, default="")
    if len(calls) < 2 or not function or kept[function] < MIB:
        return []
    size = f"{kept[function] / MIB:.1f} MiB"
    fix = Fix(
        summary=f"let {function}() overwrite the state that it replaces; saves {size}",
        how=f"jax.jit({function}, donate_argnums=0)  # and rebind: state = {function}(state, …)",
        change=Change(step={"donated": True}),
    )
    return [(f"{size} of state are not donated to {function}(), which holds them twice", fix)]


def is_replaced(leaf: Leaf, place: int) -> bool:
    """Whether the call at this place of a step takes what it has returned in the step before."""
    return leaf.kind == "device" and leaf.source is not None and leaf.source[0] == place


def of_the_program(observation: Observation) -> list[Reason]:
    """Of the function that was traced."""
    program = observation.program
    if program is None or not tells_donations(observation, program):
        return []
    if sum(program.operations.values()) < FEWEST_OPERATIONS:
        return []
    asked = donated_in_code(observation)
    kept = [each for each in state(program) if not each.donated and each.name not in asked]
    size = sum(argument.bytes for argument in kept)
    if size < MIB:
        return []
    workload = observation.target.workload
    reason = f"{size / MIB:.1f} MiB of state are not donated, so the step holds them twice"
    saved = f"saves {size / MIB:.1f} MiB"
    if workload is not None and workload.training.jit and not workload.training.donate:
        fix = Fix(
            summary=f"let the step overwrite the state that it replaces; {saved}",
            how="[training] donate = true",
            change=Change(workload={"training.donate": True}),
        )
    else:
        fix = Fix(
            summary=f"let the step overwrite the state that it replaces; {saved}",
            how="jax.jit(step, donate_argnums=0)  # and rebind: state = step(state, batch)",
            change=Change(step={"donated": True}),
        )
    return [(reason, fix)]


def tells_donations(observation: Observation, program: Program) -> bool:
    """Whether the program marks all arguments that XLA lets results overwrite: it takes those for
    more than are marked where marks are lost.
    """
    executable = observation.executable
    marked = sum(argument.bytes for argument in program.arguments if argument.donated)
    return executable is None or executable.alias_bytes <= marked


def donated_in_code(observation: Observation) -> set[str]:
    """The arguments that the program asks to donate; jax does not do it where it searches for NaNs:
    see debug-flags.
    """
    calls = observation.calls.calls if observation.calls is not None else ()
    return {leaf.argument for call in calls for leaf in call.leaves if leaf.donated}


def unusable(observation: Observation) -> list[Reason]:
    """Donations that JAX warned of, unless they are small."""
    warned = [each for each in observation.messages or () if UNUSABLE in each]
    sizes = [
        [bytes_of(kind, [int(n) for n in dims.split(",") if n]) for kind, dims in found]
        for each in warned
        if (found := SHAPE.findall(each))
    ]
    small = len(sizes) == len(warned) and sum(map(sum, sizes)) < MIB
    if not warned or small:
        return []
    size = sum(map(sum, sizes))
    fix = Fix(
        summary="donate only what a result of the same shape and type replaces",
        how="keep shapes and dtypes of the state, or take the argument out of donate_argnums",
    )
    return [(f"donated buffers were not usable ({size / MIB:.1f} MiB)", fix)]


def state(program: Program) -> list[Argument]:
    """The arguments that a result replaces."""
    data = {id(argument) for argument in program.data}
    return [argument for argument in program.arguments if id(argument) not in data]
