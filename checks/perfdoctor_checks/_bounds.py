"""What a network would gain that kept to the guide's bounds."""

import math
from collections.abc import Sequence

from perfdoctor import Gain, Layer, Observation, Program, Steps, spared
from perfdoctor_checks._layers import (
    depth_of,
    large_kernels,
    long_recurrence,
    many_classes,
    share,
    taken_by,
    too_deep,
    wide_layers,
)
from perfdoctor_checks._limits import (
    CLASSES,
    DENSE,
    DENSE_DEPTH,
    KERNEL,
    MOSTLY,
    SLIGHT,
    TRIPS,
    USUAL_KERNEL,
)
from perfdoctor_checks._tables import without_sweeping


def within_bounds(observation: Observation, program: Program) -> Gain | None:
    """The gain if the network kept to the bound that it misses by most."""
    gains = [
        small_kernels(observation, program),
        smaller(observation, program),
        without_sweeping(observation, program),
    ]
    told = [gain for gain in gains if gain is not None]
    return max(told, key=lambda gain: gain.low, default=None)


def smaller(observation: Observation, program: Program) -> Gain | None:
    """The gain with sizes as the guide has them: half of what that spares at least, and at most all
    that the layers take. None where they are too little beyond the bounds to be worth a word.
    """
    steps = observation.steps
    if steps is None or steps.time_ms <= 0:
        return None
    parts: list[tuple[float, float]] = []
    if (layer := many_classes(observation, program)) is not None:
        taken = taken_by(observation, program, layer)
        parts.append((taken, taken * (1 - CLASSES / layer.outputs)))
    if (layers := too_deep(program)) is not None:
        taken = share(program, layers)
        parts.append((taken, taken * (1 - DENSE_DEPTH / depth_of(program, layers))))
    if layers := wide_layers(observation, program):
        takes = [(layer, taken_by(observation, program, layer)) for layer in layers]
        saved = sum(taken * (1 - DENSE / layer.outputs) for layer, taken in takes)
        parts.append((min(1.0, sum(taken for _, taken in takes)), saved))
    if (found := long_recurrence(program)) is not None:
        taken = share(program, found[1])
        parts.append((taken, taken * (1 - TRIPS / found[0].trips)))
    if not parts:
        return None
    likely, most = max((saved, taken) for taken, saved in parts)
    busy_ms = min(steps.time_ms, steps.device_busy_ms)
    gain = spared(steps.time_ms, busy_ms * likely, busy_ms * likely / 2, busy_ms * most)
    return gain if gain.speedup >= 1 + SLIGHT else None


def small_kernels(observation: Observation, program: Program) -> Gain | None:
    """The gain if the large kernels were small ones: their work grows with their area.

    At least as if they had the size of the guide's bound, and that helped half as much; most likely
    as if they were of the usual size, until the step takes no longer than the host's own work.
    """
    steps, large = observation.steps, large_kernels(program)
    if steps is None or not large or share(program, large) < MOSTLY:
        return None
    kernel = max(large, key=lambda layer: layer.flops).kernel
    large_ms = min(steps.time_ms, taken_ms(steps, program, large))

    def saved_ms(size: int) -> float:
        return large_ms * (1 - min(1.0, math.pow(size, len(kernel)) / math.prod(kernel)))

    # dispatching is no work of the host here: on the CPU it waits for the device too
    hidden_ms = min(steps.time_ms, steps.wait_ms + steps.dispatch_ms)
    least_ms = saved_ms(KERNEL) / 2
    likely_ms = min(saved_ms(USUAL_KERNEL), max(hidden_ms, least_ms))
    return spared(steps.time_ms, likely_ms, least_ms, saved_ms(1))


def taken_ms(steps: Steps, program: Program, convolutions: Sequence[Layer]) -> float:
    """What these take a step: of the time of all convolutions, where any is seen in the trace, else
    of the device's, by their share of the flops.
    """
    if not steps.convolution_ms:  # XLA may call a library under another name
        return share(program, convolutions) * steps.device_busy_ms
    everyone = [layer for layer in program.layers if layer.kind == "convolution"]
    part = share(program, convolutions) / share(program, everyone)
    return min(1.0, part) * steps.convolution_ms
