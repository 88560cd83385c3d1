"""Kernels and dense layers beyond the guide's bounds."""

import math

from perfdoctor import Change, Evidence, Fix, Observation, Program, place
from perfdoctor_checks._layers import (
    compile_s,
    large_kernels,
    many_classes,
    named,
    reading,
    share,
    taken_by,
    wide_layers,
)
from perfdoctor_checks._limits import KERNEL, MOSTLY, USUAL_KERNEL
from perfdoctor_checks._shapes import Reason

UNREAD = "not all layers of the program were read"
"""What is said where an observation does not tell why not all layers were read."""


def kernels(observation: Observation, program: Program) -> list[Reason]:
    """Convolutions in two dimensions and more with large kernels."""
    large = large_kernels(program)
    workload = observation.target.workload
    own = workload is not None and workload.model.name == "cnn" and workload.model.kernel > KERNEL
    if not large or (not own and share(program, large) < MOSTLY):
        return []
    size = "×".join(map(str, max(large, key=lambda layer: layer.flops).kernel))
    text = f"a kernel of {size} {named(program, large)}"
    if own:
        return [(text, [smaller_kernel(USUAL_KERNEL), smaller_kernel(KERNEL)])]
    fix = Fix(
        summary="stack small kernels",
        how=f"several 3×3 convolutions in place of one {size}, or a stride before the large one",
        changes_results="training",
    )
    return [(text, [fix])]


def smaller_kernel(size: int) -> Fix:
    """The fix for the reference loop."""
    return Fix(
        summary=f"convolve with kernels of {size} by {size}",
        how=f"[model] kernel = {size}",
        change=Change(workload={"model.kernel": size}),
        changes_results="training",
    )


def dense(observation: Observation, program: Program) -> list[Reason]:
    """One dense layer that takes most of the work, beside others; or one softmax over many."""
    if (layer := many_classes(observation, program)) is not None:
        fix = Fix(
            summary="fewer classes for each example",
            how="a sampled or hierarchical softmax while training",
            changes_results="training",
        )
        taken = f"{taken_by(observation, program, layer):.0%} of the device's time"
        where = f"{layer.function}, {place(layer.file, layer.line)}"
        return [(f"{layer.outputs} classes ({where}, {taken})", [fix])]
    wide = wide_layers(observation, program)
    if not wide:
        return []
    sizes = " and ".join(f"{layer.inputs} by {layer.outputs}" for layer in wide)
    text = f"{'dense layers' if len(wide) > 1 else 'a dense layer'} of {sizes}"
    fix = Fix(
        summary="narrow the layer that takes most of the step",
        how="pool or stride before it, or put two narrower layers in its place",
        changes_results="training",
    )
    taking = [*wide, *reading(program, wide)]
    return [(f"{text} {named(program, taking)}", [fix])]


def facts(observation: Observation, program: Program) -> list[Evidence]:
    """The costliest layers, the state's size, loops, and the compilation."""
    data = {id(argument) for argument in program.data}
    state = sum(math.prod(a.shape) for a in program.arguments if id(a) not in data)
    found = [
        Evidence(
            f"{layer.kind} {layer.inputs} to {layer.outputs}",
            round(share(program, [layer]), 3),
            "share of the forward pass",
            place(layer.file, layer.line),
        )
        for layer in program.layers[:5]
    ]
    found += [
        Evidence("loop", loop.trips, "trips", place(loop.file, loop.line))
        for loop in program.loops[:3]
    ]
    layers = sum(layer.written for layer in program.layers)
    found += [
        Evidence("layers written", layers, "layers", "StableHLO"),
        Evidence("state", state, "elements", "arguments with a result"),
    ]
    seconds = compile_s(observation)
    if seconds is not None:
        found.append(Evidence("compiling", round(seconds, 2), "s", "jax.monitoring"))
    return found
