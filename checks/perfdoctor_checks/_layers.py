"""The layers of a step: which there are, and what they take of it."""

import math
from collections import Counter
from collections.abc import Sequence

from perfdoctor import Layer, Loop, Observation, Program, needed, place
from perfdoctor_checks._limits import (
    CLASSES,
    DENSE,
    DENSE_DEPTH,
    GOOD_PART,
    KERNEL,
    TRIPS,
)


def large_kernels(program: Program) -> list[Layer]:
    """Convolutions in two dimensions and more."""
    return [each for each in program.layers if len(each.kernel) > 1 and max(each.kernel) > KERNEL]


def share(program: Program, layers: Sequence[Layer]) -> float:
    """The share of the forward pass's FLOPs that these layers do."""
    total = sum(layer.flops for layer in program.layers)
    return sum(layer.flops for layer in layers) / total if total > 0 else 0.0


def named(program: Program, layers: Sequence[Layer]) -> str:
    """The costliest of them, its line, and the share of them all."""
    first = max(layers, key=lambda layer: layer.flops)
    where = f"{first.function}, {place(first.file, first.line)}"
    return f"({where}, {share(program, layers):.0%} of the forward pass)"


def dense_layers(program: Program) -> list[Layer]:
    """Products with weights: arguments of the program, those that it replaces if it trains."""
    arrays = [each for each in program.arguments if len(each.shape) >= 2]
    data = {id(each) for each in program.data}
    state = [each for each in arrays if id(each) not in data]
    weights = {tuple(sorted(each.shape[-2:])) for each in state or arrays}
    return [
        layer
        for layer in program.layers
        if layer.kind == "product" and tuple(sorted((layer.inputs, layer.outputs))) in weights
    ]


def many_classes(observation: Observation, program: Program) -> Layer | None:
    """A layer with very many outputs that takes a good part of the step."""
    wide = [layer for layer in dense_layers(program) if layer.outputs > CLASSES]
    taking = [each for each in wide if taken_by(observation, program, each) >= GOOD_PART]
    return taking[0] if taking and len(program.layers) > 1 else None


def wide_layers(observation: Observation, program: Program) -> list[Layer]:
    """Dense layers that are wider than the guide has it, and take a good part of the step together;
    not those of equal blocks, as transformers have them.
    """
    wide = [
        layer
        for layer in dense_layers(program)
        if DENSE < layer.outputs <= CLASSES and layer.executed == 1
    ]
    taken = sum(taken_by(observation, program, layer) for layer in wide)
    return wide if taken >= GOOD_PART and len(program.layers) > len(wide) else []


def long_recurrence(program: Program) -> tuple[Loop, list[Layer]] | None:
    """A loop over more positions of a sequence than the guide has it, and the layers in it, where
    they hold a good part of the work.
    """
    times = {size for argument in program.data for size in argument.shape[1:]}
    for loop in program.loops:
        inside = [e for e in program.layers if e.executed >= loop.trips * e.written]
        over_time = bool({loop.trips, loop.trips + 1} & times)
        if loop.trips > TRIPS and over_time and share(program, inside) >= GOOD_PART:
            return loop, inside
    return None


def taken_by(observation: Observation, program: Program, layer: Layer) -> float:
    """The share of the device's time that a layer takes, with those that read it: by the operations
    on its axis where that is told, and the batch is not as long by chance; else by FLOPs.
    """
    told: dict[int, float] = {}
    if observation.executable is not None and layer.outputs != layer.rows:
        told = observation.executable.axis_shares
    return told.get(layer.outputs, share(program, [layer, *reading(program, [layer])]))


def reading(program: Program, wide: Sequence[Layer]) -> list[Layer]:
    """The layers that read all that a wide one gives, and are as wide on that side."""
    widths = {each.outputs for each in wide}
    return [
        layer
        for layer in dense_layers(program)
        if layer.inputs in widths and layer.outputs <= DENSE and layer.executed == 1
    ]


def too_deep(program: Program) -> list[Layer] | None:
    """Dense layers with nothing else between, more than the guide has it; no attention, say."""
    layers = dense_layers(program)
    alone = len(layers) == len(program.layers)
    return layers if alone and depth_of(program, layers) > DENSE_DEPTH else None


def depth_of(program: Program, layers: Sequence[Layer]) -> int:
    """Dense layers one after another, with weights of their own: derivatives of a network, and
    several calls of it, write the same ones again. Weights that lie in one array are those of
    layers one after another where a loop takes one at a time; else of networks beside each other.
    At most as many as wait for each other: experts do not. An optimizer's state of some weights has
    their shape, and is none of them.
    """
    trips = {loop.trips for loop in program.loops}
    weights: Counter[tuple[int, ...]] = Counter()
    passes: Counter[tuple[int, ...]] = Counter()
    for argument in program.arguments:
        if len(argument.shape) >= 2 and argument.multiplied:
            *stacked, first, second = argument.shape
            size = tuple(sorted((first, second)))
            weights[size] += math.prod(stacked)
            passes[size] = max(passes[size], math.prod(n for n in stacked if n in trips))
    written: Counter[tuple[int, ...]] = Counter()
    for layer in layers:
        size = tuple(sorted((layer.inputs, layer.outputs)))
        written[size] += layer.written * passes[size]
    depth = sum(min(count, weights[size]) for size, count in written.items())
    return depth if program.chain is None else min(depth, program.chain)


def compile_s(observation: Observation) -> float | None:
    """The longest compilation of the step."""
    function = needed(observation.program).function
    found = [each.seconds for each in observation.compiles or () if each.function == function]
    return max(found, default=None)
