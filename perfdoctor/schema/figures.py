"""What the pictures of a Report are drawn from, and the lines of code that its findings name.

Times are in the unit that the field's name says.
"""

from typing import Literal

from msgspec import Struct

from perfdoctor.schema.fix import Gain
from perfdoctor.schema.memory import MemorySample

Part = Literal["device", "etl", "dispatch", "wait", "gc", "logging", "other", "copy"]
"""What a device or a thread did; `copy`: host arrays to a device."""


class Span(Struct, frozen=True, array_like=True, gc=False):
    """What a lane did from one instant to another; instants as in `Excerpt`."""

    part: Part
    start_ms: float
    end_ms: float


class Lane(Struct, frozen=True, kw_only=True):
    """A device or a thread: what it did, one thing at a time, the earliest first."""

    name: str
    kind: Literal["main", "device", "loader", "caller", "copies"]
    spans: tuple[Span, ...]
    left_out: int = 0
    """Shorter spans that were not kept."""


class Mark(Struct, frozen=True, kw_only=True):
    """Something that a reader looks for in a timeline."""

    kind: Literal["collection", "compilation", "wait", "outlier"]
    start_ms: float
    end_ms: float
    text: str
    """What it was: the place of a collection, the function that was compiled."""


class Excerpt(Struct, frozen=True, kw_only=True):
    """Some consecutive steps of the traced window, as they were while it was traced.

    Instants are milliseconds from the begin of the first step that is shown.
    """

    function: str
    """The jitted function whose calls begin the steps."""
    first_step: int
    """Among the steps of the window, which begin with 1."""
    window_steps: int
    borders_ms: tuple[float, ...]
    """Where a step begins, and where the last one ends."""
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...] = ()
    marks_left_out: int = 0
    """Shorter ones that were not kept."""

    @property
    def length_ms(self) -> float:
        """From the first step's begin to the last one's end."""
        return self.borders_ms[-1] - self.borders_ms[0]


class MemoryCurve(Struct, frozen=True, kw_only=True):
    """Memory over the traced window; the profiler's own events are part of the process's."""

    samples: tuple[MemorySample, ...]
    available_bytes: int
    """What could still be had as the window was opened."""


class TriedFix(Struct, frozen=True, kw_only=True):
    """A fix that was tried, whether it helped or not."""

    check: str
    """Whose fix it is; empty for all fixes together."""
    how: str
    gain: Gain | None
    """None: it could not be run."""
    failure: str | None = None
    after: tuple[str, ...] = ()
    """Checks whose fixes were in place on both sides."""


class SweepPoint(Struct, frozen=True, kw_only=True):
    """The throughput with one setting; 95 % interval, or none for the setting that was observed."""

    setting: int
    samples_per_s: float
    low: float
    high: float
    is_observed: bool = False
    is_best: bool = False
    """The knee: the smallest setting that is nearly as good as the best."""


class Sweep(Struct, frozen=True, kw_only=True):
    """A setting against the throughput, the smallest first; two points at least."""

    of: Literal["batch size", "threads"]
    name: str
    """What is set: `batch size`, `loader threads`, …"""
    points: tuple[SweepPoint, ...]


class LayerShare(Struct, frozen=True, kw_only=True):
    """A layer's share of the floating-point operations of the forward pass."""

    name: str
    """Its kind and its features: `convolution 3×3, 32 to 64`."""
    function: str
    place: str
    """file:line"""
    share: float
    flops: float
    """A step."""


class SourceLines(Struct, frozen=True, kw_only=True):
    """Lines of the user's program around one that the Report names, as they were when it ran."""

    place: str
    """As the Report names it: folder/file:line."""
    file: str
    """The whole path."""
    line: int
    """The one that is meant."""
    first_line: int
    lines: tuple[str, ...]
