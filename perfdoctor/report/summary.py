"""The parts of the Report that sum up an Observation."""

from perfdoctor.answers import place
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.summary import EnvironmentSummary, StepSummary

PARTS = {
    "device": "device_busy_ms",
    "etl": "exposed_etl_ms",
    "gc": "exposed_gc_ms",
    "dispatch": "exposed_dispatch_ms",
    "wait": "exposed_wait_ms",
    "logging": "exposed_logging_ms",
    "other": "exposed_other_ms",
}
"""What a step's time is divided into; together they are the whole of it."""
PLACES = {
    "etl": "etl_places",
    "wait": "wait_places",
    "logging": "logging_places",
    "other": "other_places",
}
"""Where in the code the main thread was, by its shares of all samples."""


def environment(observation: Observation) -> EnvironmentSummary:
    """The machine and what runs on it, as far as a reader of the report needs it."""
    host, backend, libraries = observation.host, observation.backend, observation.libraries
    return {
        "os": host.os,
        "cpu": host.cpu_model,
        "cores": host.usable_cores,
        "vector_sets": [flag for flag in host.cpu_flags if flag.startswith(("avx", "amx", "sve"))],
        "memory_bytes": host.memory_bytes,
        "backend": backend.platform if backend else None,
        "devices": [device.kind for device in backend.devices] if backend else [],
        "gpus": [gpu.name for gpu in observation.gpus],
        "python": libraries.python if libraries else None,
        "packages": libraries.packages if libraries else {},
        "variables": observation.environment,
        "settings": {setting.name: setting.value for setting in observation.settings or ()},
    }


def replays_another(observation: Observation) -> bool:
    """Whether what was replayed is no part of the step, as what other threads ask of a model that
    this one trains; or only a part, as a function that is not jitted, beside jitted ones.
    """
    seen, calls, eager = observation.steps, observation.calls, observation.eager
    if seen is None or calls is None:
        return False
    probed = {call.function for call in calls.calls}
    if eager is None:
        return not {seen.function, *seen.calls} & probed
    return eager.is_step and not probed <= set(eager.holds)  # of operations not all are kept


def untraced_ms(observation: Observation) -> float | None:
    """What a step took while nothing was traced: of those that were replayed, if any were."""
    if replays_another(observation):
        return None
    if observation.alone is not None:
        return observation.alone.observed_ms
    return observation.calls.time_ms if observation.calls else None


def steps(observation: Observation) -> StepSummary | None:
    """What a step took, and what of it the device was waiting for."""
    seen = observation.steps
    alone = None if replays_another(observation) else observation.alone
    if seen is None:
        return None
    return {
        "function": seen.function,
        "calls": seen.calls,
        "count": seen.count,
        "left_out": seen.left_out,
        "is_traced": seen.is_traced,
        "time_ms": seen.time_ms,
        "untraced_ms": untraced_ms(observation),
        "alone_ms": alone.alone_ms if alone else None,
        "emulated_ms": alone.emulated_ms if alone else None,
        "made_up": list(alone.made) if alone else None,
        "not_replayed": observation.not_measured.get("alone"),
        "failed": observation.failure.message if observation.failure else None,
        "median_ms": seen.median_ms,
        "p95_ms": seen.p95_ms,
        "outliers": seen.outliers,
        "outlier_share": seen.outlier_share,
        "standard_error_ms": seen.standard_error_ms,
        "slowed": seen.slowed,
        "etl_ms": seen.exposed_etl_ms,
        "device_busy_fraction": seen.device_busy_ms / seen.time_ms,
        "samples_per_s": seen.samples_per_s,
        "batch_size": seen.batch_size,
        "cpu_ms": seen.cpu_ms,
        "parts_ms": {name: getattr(seen, field) for name, field in PARTS.items()},
        "places": [
            {
                "part": part,
                "function": each.function,
                "place": place(each.file, each.line),
                "share": each.share,
            }
            for part, field in PLACES.items()
            for each in getattr(seen, field)
        ],
    }
