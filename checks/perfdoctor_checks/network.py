"""The network has sizes that cost more than they give.

What it finds
-------------
Kernels beyond 7, convolutions of more than 1024 channels, dense layers beyond 2048, more than
10 000 classes, images beyond 600 pixels, recurrences over more than 500 steps, more than 100
layers, or 20 dense ones with nothing else between; equal layers written out by a Python loop; on
GPUs and TPUs sizes that miss the hardware's tiles.

Why it costs
------------
Work grows with the square of kernel and width, and in proportion to classes, pixels and steps.
Layers written out make the program long: XLA compiles each one again. Sizes that miss the tiles are
padded.

How it is measured
------------------
The step's program tells each convolution and matrix product of the forward pass, its line, its
sizes and its share of the work; the trace, what operations on arrays with a very long axis take,
and what all convolutions take. A size beyond a bound is a finding only where it takes a large part
of the work. What a network within the bound would gain is estimated by that part, at most as if it
took nothing; whether it does as well only its training tells. The kernel of the reference loop is
tried.

How to fix
----------
Two or three 3 by 3 kernels in place of a large one; fewer channels; strides before wide layers;
`jax.lax.scan` over equal layers or time steps; truncated backpropagation; sampled or hierarchical
softmax; multiples of 8 (GPU) or 128 (TPU).

References
----------
Deeplearning4j, "Performance debugging", step 5: networks. JAX, "jax.lax.scan"; NVIDIA, "Matrix
multiplication background".
"""

import math
from collections.abc import Sequence

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Gain,
    Layer,
    Observation,
    Outcome,
    Program,
    Steps,
    estimated,
    hint,
    issue,
    needed,
    not_applicable,
    ok,
    place,
)

ID = "network"
NEEDS = ("program",)
KERNEL, CHANNELS, DENSE, CLASSES, PIXELS, TRIPS, DEPTH = 7, 1024, 2048, 10_000, 600, 500, 100
DENSE_DEPTH = 20
"""The guide's bounds."""
USUAL = 3
"""The size of nearly all kernels."""
MATTERS = 0.5
"""Of the forward pass: a layer beyond a bound that takes less does not decide the step's time."""
WRITTEN = 8
"""Equal layers from one line: a handful of blocks is quicker written out than scanned."""
LONG_COMPILE_S = 5.0
"""Below, writing layers out costs less than the import of jax."""
GPU_TILE, TPU_TILE, PADDED = 8, 128, 1.25
"""NVIDIA's and Google's multiples; a TPU that pads by less than a quarter is well used."""
Reason = tuple[str, list[Fix]]


def check(observation: Observation) -> Outcome:
    """Compares the layers with the guide's bounds."""
    program = needed(observation.program)
    if not program.layers and not program.loops:
        return not_applicable("the step has no convolutions and no matrix products")
    reasons = [
        *kernels(observation, program),
        *channels(program),
        *dense(observation, program),
        *deep(program),
        *images(program),
        *recurrence(program),
        *written_out(observation, program),
        *tiles(observation, program),
    ]
    evidence = facts(observation, program)
    if not reasons:
        return ok(f"{len(program.layers)} kinds of layers within the guide's bounds", *evidence)
    fixes = [fix for _, found in reasons for fix in found]
    summary = "; ".join(text for text, _ in reasons)
    gain = within_bounds(observation, program)
    if gain is not None:
        return issue(summary, evidence, fixes, gain)
    return hint(summary, evidence, fixes)


def within_bounds(observation: Observation, program: Program) -> Gain | None:
    """If the network kept to the bound that it misses by most."""
    gains = [small_kernels(observation, program), smaller(observation, program)]
    told = [gain for gain in gains if gain is not None]
    return max(told, key=lambda gain: gain.low, default=None)


def smaller(observation: Observation, program: Program) -> Gain | None:
    """With as many classes, or dense layers, as the guide has it: half of what that spares at
    least, and at most all that the layers take.
    """
    steps = observation.steps
    if steps is None or steps.time_ms <= 0:
        return None
    parts = [(0.0, 0.0)]
    if (layer := many_classes(observation, program)) is not None:
        taken = taken_by(observation, program, layer)
        parts.append((taken, taken * (1 - CLASSES / layer.outputs)))
    if (layers := too_deep(program)) is not None:
        taken = share(program, layers)
        parts.append((taken, taken * (1 - DENSE_DEPTH / sum(each.written for each in layers))))
    most, likely = max(parts)
    if most == 0:
        return None
    busy = min(1.0, steps.device_busy_ms / steps.time_ms)
    least, likely, most = (min(0.98, busy * each) for each in (likely / 2, likely, most))
    return estimated(1 / (1 - likely), 1 / (1 - least), 1 / (1 - most))


def small_kernels(observation: Observation, program: Program) -> Gain | None:
    """If the large kernels were small ones: their work grows with their area.

    At least as if they had the size of the guide's bound, and that helped half as much; most likely
    as if they were of the usual size, until the step takes no longer than the host's own work.
    """
    steps, large = observation.steps, large_kernels(program)
    if steps is None or not large or share(program, large) < MATTERS:
        return None
    kernel = max(large, key=lambda layer: layer.flops).kernel
    large_ms = min(steps.time_ms, taken_ms(steps, program, large))

    def without(size: int) -> float:
        spared = 1 - min(1.0, math.pow(size, len(kernel)) / math.prod(kernel))
        return min(0.98, spared * large_ms / max(steps.time_ms, 1e-9))

    # dispatching is no work of the host here: on the CPU it waits for the device too
    host_ms = max(0.0, steps.time_ms - steps.wait_ms - steps.dispatch_ms)
    hidden = 1 - min(1.0, host_ms / max(steps.time_ms, 1e-9))
    likely = min(without(USUAL), max(hidden, without(KERNEL) / 2))
    return estimated(
        1 / (1 - likely),
        1 / (1 - without(KERNEL) / 2),
        1 / (1 - max(likely, without(1))),
    )


def taken_ms(steps: Steps, program: Program, convolutions: Sequence[Layer]) -> float:
    """What these take a step: of the time of all convolutions, where any is seen in the trace, else
    of the device's, by their share of the flops.
    """
    if not steps.convolution_ms:  # XLA may call a library under another name
        return share(program, convolutions) * steps.device_busy_ms
    everyone = [layer for layer in program.layers if layer.kind == "convolution"]
    part = share(program, convolutions) / max(share(program, everyone), 1e-9)
    return min(1.0, part) * steps.convolution_ms


def large_kernels(program: Program) -> list[Layer]:
    """Convolutions in two dimensions and more."""
    return [each for each in program.layers if len(each.kernel) > 1 and max(each.kernel) > KERNEL]


def share(program: Program, layers: Sequence[Layer]) -> float:
    """Of the flops of the forward pass."""
    total = sum(layer.flops for layer in program.layers)
    return sum(layer.flops for layer in layers) / total if total > 0 else 0.0


def named(program: Program, layers: Sequence[Layer]) -> str:
    """The costliest of them, its line, and the share of them all."""
    first = max(layers, key=lambda layer: layer.flops)
    where = f"{first.function}, {place(first.file, first.line)}"
    return f"({where}, {share(program, layers):.0%} of the forward pass)"


def kernels(observation: Observation, program: Program) -> list[Reason]:
    """Convolutions in two dimensions and more with large kernels."""
    large = large_kernels(program)
    workload = observation.target.workload
    own = workload is not None and workload.model.name == "cnn" and workload.model.kernel > KERNEL
    if not large or (not own and share(program, large) < MATTERS):
        return []
    size = "×".join(map(str, max(large, key=lambda layer: layer.flops).kernel))
    text = f"a kernel of {size} {named(program, large)}"
    if own:
        return [(text, [smaller_kernel(3), smaller_kernel(KERNEL)])]
    fix = Fix(
        summary="stack small kernels",
        how=f"several 3×3 convolutions in place of one {size}, or a stride before the large one",
        changes_results="training",
    )
    return [(text, [fix])]


def smaller_kernel(size: int) -> Fix:
    """For the reference loop."""
    return Fix(
        summary=f"convolve with kernels of {size} by {size}",
        how=f"[model] kernel = {size}",
        change=Change(workload={"model.kernel": size}),
        changes_results="training",
    )


def channels(program: Program) -> list[Reason]:
    """Convolutions with many channels."""
    wide = [e for e in program.layers if e.kind == "convolution" and e.outputs > CHANNELS]
    if not wide or share(program, wide) < MATTERS:
        return []
    most = max(layer.outputs for layer in wide)
    fix = Fix(
        summary="fewer channels, or a bottleneck",
        how="reduce the channels by a 1×1 convolution before the wide one",
        changes_results="training",
    )
    return [(f"{most} channels {named(program, wide)}", [fix])]


def dense_layers(program: Program) -> list[Layer]:
    """Products with weights, which are arguments of the program."""
    weights = {tuple(sorted(a.shape[-2:])) for a in program.arguments if len(a.shape) >= 2}
    return [
        layer
        for layer in program.layers
        if layer.kind == "product" and tuple(sorted((layer.inputs, layer.outputs))) in weights
    ]


def many_classes(observation: Observation, program: Program) -> Layer | None:
    """A layer with very many outputs that takes most of the step."""
    wide = [layer for layer in dense_layers(program) if layer.outputs > CLASSES]
    taking = [each for each in wide if taken_by(observation, program, each) >= MATTERS]
    return taking[0] if taking and len(program.layers) > 1 else None


def taken_by(observation: Observation, program: Program, layer: Layer) -> float:
    """Of the device's time: by what its operations took where that is told, else by its flops."""
    told = observation.executable.axis_shares if observation.executable is not None else {}
    return told.get(layer.outputs, share(program, [layer]))


def too_deep(program: Program) -> list[Layer] | None:
    """Dense layers with nothing else between, more than the guide has it; no attention, say."""
    layers = dense_layers(program)
    alone = len(layers) == len(program.layers) and not program.loops
    return layers if alone and sum(each.written for each in layers) > DENSE_DEPTH else None


def deep(program: Program) -> list[Reason]:
    """A network of dense layers only."""
    layers = too_deep(program)
    if layers is None:
        return []
    fix = Fix(
        summary="fewer and wider layers",
        how=f"{DENSE_DEPTH} dense layers at most, or connections that skip some",
        changes_results="training",
    )
    depth = sum(each.written for each in layers)
    return [(f"{depth} dense layers, one after another {named(program, layers)}", [fix])]


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
    for layer in dense_layers(program):
        if share(program, [layer]) < MATTERS or len(program.layers) < 2:
            continue
        if layer.outputs > DENSE:
            sizes = f"a dense layer of {layer.inputs} by {layer.outputs}"
            fix = Fix(
                summary="narrow the layer that takes most of the step",
                how="pool or stride before it, or put two narrower layers in its place",
                changes_results="training",
            )
            return [(f"{sizes} {named(program, [layer])}", [fix])]
    return []


def images(program: Program) -> list[Reason]:
    """Pictures of more pixels than most networks can use."""
    for argument in program.data:
        if len(argument.shape) != 4:
            continue
        _, first, *middle, last = argument.shape
        size = (first, *middle) if last <= 4 else (*middle, last) if first <= 4 else ()
        if size and min(size) > PIXELS:
            fix = Fix(
                summary="smaller images",
                how="resize to 224 pixels when the data set is prepared, or cut them into crops",
                changes_results="training",
            )
            pixels = " by ".join(map(str, size))
            return [(f"images of {pixels} pixels ({argument.name})", [fix])]
    return []


def recurrence(program: Program) -> list[Reason]:
    """Loops over the positions of a sequence, where they hold a good part of the work."""
    times = {size for argument in program.data for size in argument.shape[1:]}
    for loop in program.loops:
        inside = [e for e in program.layers if e.executed >= loop.trips * e.written]
        over_time = bool({loop.trips, loop.trips + 1} & times)
        if loop.trips > TRIPS and over_time and share(program, inside) >= MATTERS:
            where = f"{loop.function}, {place(loop.file, loop.line)}"
            fix = Fix(
                summary="truncate the backpropagation",
                how="train on pieces of a few hundred steps, and carry the state over",
                changes_results="training",
            )
            return [(f"a recurrence over {loop.trips} steps, one after another ({where})", [fix])]
    return []


def written_out(observation: Observation, program: Program) -> list[Reason]:
    """Layers that a Python loop repeated in the program, and networks that are deep."""
    most = max(program.layers, key=lambda layer: layer.written, default=None)
    seconds = compile_s(observation)
    slow = seconds is None or seconds >= LONG_COMPILE_S
    took = "" if seconds is None else f"; compiling the step took {seconds:.1f} s"
    workload = observation.target.workload
    if most is not None and most.written >= WRITTEN:
        where = f"{most.function}, {place(most.file, most.line)}"
        text = f"{most.written} equal layers are written out in the program ({where}){took}"
        if workload is not None and workload.model.name == "lstm" and not workload.model.scan:
            change = Change(workload={"model.scan": True}, speeds_up="launch")
            how = "[model] scan = true"
            return [(text, [Fix(summary="scan over time", how=how, change=change)])]
        how = "jax.lax.scan(layer, hidden, stacked_weights)  # in place of a Python loop"
        return [(text, [Fix(summary="scan over equal layers or steps", how=how)])] if slow else []
    depth = sum(layer.written for layer in program.layers)
    if depth <= DEPTH or not slow:
        return []
    fix = Fix(
        summary="fewer layers, or one program for equal blocks",
        how="jax.lax.scan over blocks of equal shape; compare with a shallower, wider network",
        changes_results="training",
    )
    return [(f"{depth} layers{took}", [fix])]


def compile_s(observation: Observation) -> float | None:
    """The longest compilation of the step."""
    function = needed(observation.program).function
    found = [each.seconds for each in observation.compiles or () if each.function == function]
    return max(found, default=None)


def tiles(observation: Observation, program: Program) -> list[Reason]:
    """Sizes of costly layers that an accelerator must pad."""
    platform = observation.backend.platform if observation.backend else "cpu"
    if platform == "cpu":
        return []
    tile = TPU_TILE if platform == "tpu" else GPU_TILE
    for layer in program.layers:
        sizes = [size for size in (layer.inputs, layer.outputs) if size > tile]
        missing = [size for size in sizes if misses(size, tile)]
        if missing and share(program, [layer]) >= MATTERS:
            size = missing[0]
            fix = Fix(
                summary=f"use multiples of {tile}",
                how=f"{math.ceil(size / tile) * tile} in place of {size}",
                changes_results="training",
            )
            text = f"a size of {size}, no multiple of {tile} {named(program, [layer])}"
            return [(text, [fix])]
    return []


def misses(size: int, tile: int) -> bool:
    """Not a multiple; on a TPU only if padding adds much."""
    padded = math.ceil(size / tile) * tile
    return size % tile != 0 and (tile == GPU_TILE or padded / size >= PADDED)


def facts(observation: Observation, program: Program) -> list[Evidence]:
    """The costliest layers, the state's size, loops, and the compilation."""
    data = {id(argument) for argument in program.data}
    state = sum(math.prod(a.shape) for a in program.arguments if id(a) not in data)
    found = [
        Evidence(
            name=f"{layer.kind} {layer.inputs} to {layer.outputs}",
            value=round(share(program, [layer]), 3),
            unit="share of the forward pass",
            source=place(layer.file, layer.line),
        )
        for layer in program.layers[:5]
    ]
    found += [
        Evidence(name="loop", value=loop.trips, unit="trips", source=place(loop.file, loop.line))
        for loop in program.loops[:3]
    ]
    layers = sum(layer.written for layer in program.layers)
    found += [
        Evidence(name="layers written", value=layers, unit="layers", source="StableHLO"),
        Evidence(name="state", value=state, unit="elements", source="arguments with a result"),
    ]
    seconds = compile_s(observation)
    if seconds is not None:
        found.append(
            Evidence(name="compiling", value=round(seconds, 2), unit="s", source="jax.monitoring")
        )
    return found
