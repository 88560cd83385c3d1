"""The network has sizes that cost more than they give.

What it finds
-------------
Kernels beyond 7, convolutions of more than 1024 channels, dense layers beyond 2048, more than
10 000 classes, images beyond 600 pixels, recurrences over more than 500 steps, more than 100
layers, or 20 dense ones with nothing else between; tables of more than 10 000 rows that are
computed anew though a step uses few of them; equal layers written out by a Python loop; on GPUs and
TPUs sizes that miss the hardware's tiles.

Why it costs
------------
Work grows with the square of kernel and width, and in proportion to classes, pixels and steps.
The derivative with respect to a table is as large as the table, and so is its optimizer's state.
Layers written out make the program long: XLA compiles each one again. Sizes that miss the tiles are
padded.

How it is measured
------------------
The programs of the step tell each convolution and matrix product of the forward pass, its line, its
sizes and its share of the work, and of which tables rows are looked up, and which are computed as a
whole; the trace, what operations on arrays with a very long axis take, and what all convolutions
take. A size beyond a bound is a finding only where it takes a large part
of the work. What a network within the bound would gain is estimated by that part, at most as if it
took nothing; whether it does as well only its training tells. The kernel of the reference loop is
tried.

How to fix
----------
Two or three 3 by 3 kernels in place of a large one; fewer channels; strides before wide layers;
`jax.lax.scan` over equal layers or time steps; truncated backpropagation; sampled or hierarchical
softmax; the derivative with respect to the rows of a table that are used; multiples of 8 (GPU) or
128 (TPU).

References
----------
Deeplearning4j, "Performance debugging", step 5: networks. JAX, "jax.lax.scan"; NVIDIA, "Matrix
multiplication background".
"""

import math

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Observation,
    Outcome,
    Program,
    hint,
    issue,
    needed,
    not_applicable,
    not_measured,
    ok,
    place,
)
from perfdoctor_checks._bounds import within_bounds
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
from perfdoctor_checks._shapes import Reason, channels, deep, images, recurrence, tiles, written_out
from perfdoctor_checks._tables import swept

ID = "network"
NEEDS = ("program",)
UNREAD = "not all layers of the program were read"
"""What is said where an observation does not tell why not all layers were read."""


def check(observation: Observation) -> Outcome:
    """Compares the layers with the guide's bounds."""
    program = needed(observation.program)
    unread = "" if program.is_whole else observation.not_measured.get("layers", UNREAD)
    if not program.layers and not program.loops and not unread:
        return not_applicable("the step has no convolutions and no matrix products")
    reasons = [
        *kernels(observation, program),
        *channels(program),
        *dense(observation, program),
        *swept(observation, program),
        *deep(program),
        *images(program),
        *recurrence(program),
        *written_out(observation, program),
        *tiles(observation, program),
    ]
    evidence = facts(observation, program)
    if not reasons and unread:
        return not_measured(unread)
    if not reasons:
        return ok(f"{len(program.layers)} kinds of layers, all within the usual bounds", *evidence)
    fixes = [fix for _, found in reasons for fix in found]
    summary = "; ".join(text for text, _ in reasons)
    gain = within_bounds(observation, program)
    if gain is not None:
        return issue(summary, evidence, fixes, gain)
    return hint(summary, evidence, fixes)


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
