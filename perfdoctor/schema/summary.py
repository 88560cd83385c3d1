"""What a Report sums up of an Observation: its `steps` and its `environment`.

Keys that reports of older versions lack are marked NotRequired.
"""

from typing import NotRequired, TypedDict

from perfdoctor.schema.fix import Scalar


class CodePlace(TypedDict):
    """Where in the code the main thread was."""

    part: str
    """Which part of the step: etl, wait, logging, other."""
    function: str
    place: str
    """file:line."""
    share: float
    """The share of all samples of the main thread: 0.1 is 10 %."""


class StepSummary(TypedDict):
    """What a step took, and what of it the device was waiting for."""

    function: str
    """The jitted function whose repeated dispatch makes the steps."""
    calls: dict[str, float]
    """Calls a step by jitted function."""
    count: int
    """Steps of the traced window that are counted."""
    left_out: NotRequired[int]
    """Steps of the window not counted, since something compiled in them."""
    is_traced: NotRequired[bool]
    """False: the run ended before, or its trace was not read; all is told by its jitted calls."""
    time_ms: float
    """Mean."""
    untraced_ms: NotRequired[float | None]
    """A step while nothing was traced, by the calls of its function."""
    alone_ms: NotRequired[float | None]
    """The captured step with nothing on the host."""
    emulated_ms: NotRequired[float | None]
    """The captured step with the host's part emulated beside it."""
    made_up: NotRequired[list[str] | None]
    """Arguments that were replayed with made-up values."""
    not_replayed: NotRequired[str | None]
    """Why no fix was measured on the step alone."""
    failed: NotRequired[str | None]
    """How the run failed after these steps, if it did."""
    median_ms: float
    p95_ms: float
    outliers: int
    """Steps that took more than three times the median."""
    outlier_share: float
    """The share of the steps' whole time that the outliers take."""
    standard_error_ms: NotRequired[float]
    slowed: float
    """Times that steps were longer for being traced; 1 where that is not known."""
    etl_ms: NotRequired[float]
    """The device idle, the main thread in data loading."""
    device_busy_fraction: NotRequired[float]
    """0.9 is 90 % of the time."""
    samples_per_s: NotRequired[float | None]
    batch_size: NotRequired[int | None]
    cpu_ms: NotRequired[float]
    """CPU time of the whole process tree a step."""
    parts_ms: dict[str, float]
    """What a step's time is divided into; together they are the whole of it."""
    places: list[CodePlace]


class EnvironmentSummary(TypedDict):
    """The machine and what runs on it."""

    os: NotRequired[str]
    cpu: NotRequired[str]
    cores: NotRequired[float]
    """That may be used: the affinity mask and the cgroup's quota count."""
    vector_sets: NotRequired[list[str]]
    memory_bytes: NotRequired[int]
    backend: str | None
    devices: NotRequired[list[str]]
    gpus: NotRequired[list[str]]
    python: NotRequired[str | None]
    packages: dict[str, str]
    """Distribution name to version."""
    variables: NotRequired[dict[str, str]]
    """Environment variables in force that bear on performance."""
    settings: NotRequired[dict[str, Scalar | None]]
    """JAX settings that are not at their defaults."""
