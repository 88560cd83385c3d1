"""Shapes of a network that cost more than they give: images, recurrences, equal layers, tiles."""

import math

from perfdoctor import Change, Fix, Observation, Program, place
from perfdoctor_checks._layers import (
    compile_s,
    depth_of,
    long_recurrence,
    named,
    share,
    too_deep,
)
from perfdoctor_checks._limits import (
    CHANNELS,
    COLOURS,
    DENSE_DEPTH,
    DEPTH,
    GOOD_PART,
    GPU_TILE,
    HANDFUL,
    IMAGE_AXES,
    LAUNCH_S,
    MOSTLY,
    PIXELS,
    TPU_TILE,
)

Reason = tuple[str, list[Fix]]
"""What is beyond a bound, and what to do."""


def images(program: Program) -> list[Reason]:
    """Pictures of more pixels than most networks can use."""
    for argument in program.data:
        if len(argument.shape) != IMAGE_AXES:
            continue
        _, first, *middle, last = argument.shape
        size = (first, *middle) if last <= COLOURS else (*middle, last) if first <= COLOURS else ()
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
    found = long_recurrence(program)
    if found is None:
        return []
    loop, inside = found
    where = f"{loop.function}, {place(loop.file, loop.line)}"
    fix = Fix(
        summary="truncate the backpropagation",
        how="train on pieces of a few hundred steps, and carry the state over",
        changes_results="training",
    )
    part = f"{share(program, inside):.0%} of the forward pass"
    return [(f"a recurrence over {loop.trips} steps, one after another ({where}, {part})", [fix])]


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
    depth = depth_of(program, layers)
    return [(f"{depth} dense layers, one after another {named(program, layers)}", [fix])]


def written_out(observation: Observation, program: Program) -> list[Reason]:
    """Layers that a Python loop repeated in the program, and networks that are deep."""
    most = max(program.layers, key=lambda layer: layer.written, default=None)
    seconds = compile_s(observation)
    slow = seconds is None or seconds >= LAUNCH_S
    took = "" if seconds is None else f"; compiling the step took {seconds:.1f} s"
    workload = observation.target.workload
    if most is not None and most.written >= HANDFUL:
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


def tiles(observation: Observation, program: Program) -> list[Reason]:
    """Sizes of costly layers that an accelerator must pad."""
    platform = observation.backend.platform if observation.backend else "cpu"
    if platform == "cpu":
        return []
    tile = TPU_TILE if platform == "tpu" else GPU_TILE
    for layer in program.layers:
        sizes = [size for size in (layer.inputs, layer.outputs) if size > tile]
        missing = [size for size in sizes if misses(size, tile)]
        if missing and share(program, [layer]) >= MOSTLY:
            size = missing[0]
            fix = Fix(
                summary=f"use multiples of {tile}",
                how=f"{math.ceil(size / tile) * tile} in place of {size}",
                changes_results="training",
            )
            text = f"a size of {size}, which is not a multiple of {tile} {named(program, [layer])}"
            return [(text, [fix])]
    return []


def misses(size: int, tile: int) -> bool:
    """Whether a size is not a multiple of the tile; on a TPU only if padding adds much."""
    padded = math.ceil(size / tile) * tile
    return size % tile != 0 and (tile == GPU_TILE or padded / size >= 1 + GOOD_PART)


def channels(program: Program) -> list[Reason]:
    """Convolutions with many channels."""
    wide = [e for e in program.layers if e.kind == "convolution" and e.outputs > CHANNELS]
    if not wide or share(program, wide) < MOSTLY:
        return []
    most = max(layer.outputs for layer in wide)
    fix = Fix(
        summary="fewer channels, or a bottleneck",
        how="reduce the channels by a 1×1 convolution before the wide one",
        changes_results="training",
    )
    return [(f"{most} channels {named(program, wide)}", [fix])]
