"""From launches to numbers with intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from scipy.special import stdtrit

from perfdoctor.schema.benchmark import Exact, LaunchRecord, Metric
from perfdoctor.schema.observation import Observation

LEVEL = 0.975
"""Quantile of a two-sided 95 % interval."""


@dataclass(frozen=True)
class Kind:
    """A metric that each launch gives."""

    name: str
    unit: str
    of: Callable[[LaunchRecord], float]
    better: Literal["lower", "higher"] = "lower"


KINDS = (
    Kind("step_time", "ms", lambda launch: launch.mean_ms),
    Kind("step_time_median", "ms", lambda launch: launch.median_ms),
    Kind("step_time_p95", "ms", lambda launch: launch.p95_ms),
    Kind("cpu_time", "ms a step", lambda launch: launch.cpu_ms),
    Kind("compile_time", "s", lambda launch: launch.compile_s),
    Kind("first_step", "s", lambda launch: launch.first_step_s),
    Kind("peak_memory", "bytes", lambda launch: float(launch.peak_rss_bytes)),
)
"""The metrics that each launch gives."""


def metrics(launches: Sequence[LaunchRecord], observation: Observation) -> tuple[Metric, ...]:
    """The metrics of all launches together, and those that only the observed run shows."""
    found = [over_launches(kind, launches) for kind in KINDS] if launches else []
    return (*found, *throughput(found, observation), *observed(observation))


def over_launches(kind: Kind, launches: Sequence[LaunchRecord]) -> Metric:
    """The geometric mean, and Student's interval of it on the logarithms.

    A launch is one observation: two launches of one program differ by more than the scatter of
    their steps would have it (other addresses, other neighbours).
    """
    values = [kind.of(launch) for launch in launches]
    if min(values) <= 0:
        return Metric(name=kind.name, unit=kind.unit, better=kind.better, value=fmean(values))
    logs = [math.log(value) for value in values]
    centre, half = fmean(logs), half_width(logs)
    return Metric(
        name=kind.name,
        unit=kind.unit,
        better=kind.better,
        value=math.exp(centre),
        low=math.exp(centre - half) if half is not None else None,
        high=math.exp(centre + half) if half is not None else None,
    )


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of their mean; None for a single value."""
    count = len(values)
    if count < 2:
        return None
    return float(stdtrit(count - 1, LEVEL)) * stdev(values) / math.sqrt(count)


def throughput(found: Sequence[Metric], observation: Observation) -> list[Metric]:
    """Samples per second, from the step time and the batch that the program shows."""
    step = next((each for each in found if each.name == "step_time"), None)
    seen = observation.steps
    if step is None or seen is None or seen.batch_size is None:
        return []
    samples = seen.batch_size * seen.calls.get(seen.function, 1.0) * 1e3
    bounded = step.low is not None and step.high is not None
    return [
        Metric(
            name="throughput",
            unit="samples/s",
            better="higher",
            value=samples / step.value,
            low=samples / step.high if bounded and step.high else None,
            high=samples / step.low if bounded and step.low else None,
        )
    ]


def observed(observation: Observation) -> list[Metric]:
    """What a step waits for its data, and the devices' memory: of one run, under observation."""
    found = []
    if observation.steps is not None:
        wait_ms = observation.steps.exposed_etl_ms
        found.append(Metric(name="etl_wait", unit="ms", better="lower", value=wait_ms))
    devices = observation.memory.devices if observation.memory else ()
    if devices:
        peak = float(max(device.peak_bytes for device in devices))
        found.append(Metric(name="peak_device_memory", unit="bytes", better="lower", value=peak))
    return found


def exact(launches: Sequence[LaunchRecord], observation: Observation) -> Exact | None:
    """What is the same in each run; None where the step's program was not seen."""
    executable, steps, whole = observation.executable, observation.steps, observation.cost
    if executable is None or steps is None:
        return None
    compiles = {launch.compiles for launch in launches}
    cost = whole or executable
    return Exact(
        flops=cost.flops,
        bytes_accessed=cost.bytes_accessed,
        temp_bytes=cost.temp_bytes,
        programs=whole.programs if whole else None,
        hlo=executable.hlo,
        compiles=compiles.pop() if len(compiles) == 1 else None,
        dispatches=round(steps.dispatches, 2),
    )
