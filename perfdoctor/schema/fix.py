"""What can be done about a finding, what trying it showed, and what it is worth."""

from typing import Literal

from msgspec import Struct

Scalar = bool | int | float | str
Speeds = Literal["steps", "launch"]


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a machine can change about a target before it runs it."""

    env: dict[str, str | None] = {}
    """Environment variables to set; None: to remove."""
    workload: dict[str, Scalar] = {}
    """Fields of the workload, by dotted name: `data.prefetch`."""
    folders: tuple[str, ...] = ()
    """Environment variables that name a folder; a trial gives it an empty one of its own."""
    settings: dict[str, Scalar] = {}
    """JAX settings to make in a script, whatever its code says."""
    gc_freeze: bool = False
    """Take what a script's set-up made out of later collections."""
    gc_skip_collect: bool = False
    """Let a script's own gc.collect() do nothing once it is set up."""
    cores: tuple[int, ...] = ()
    """Cores that a script may run on; none: as without the change."""
    speeds_up: Speeds = "steps"
    """What gets faster, and so what a trial measures: the steps, or a whole run from its start."""


class Fix(Struct, frozen=True, kw_only=True):
    """What to do about a finding."""

    summary: str
    how: str
    """A line to paste, or the thing to do."""
    change: Change | None = None
    changes_results: Literal["no", "numerics", "training"] = "no"
    """Whether the trained model may differ: by rounding, or as by another hyper-parameter."""


class Tried(Struct, frozen=True, kw_only=True):
    """What trying a fix showed."""

    check: str
    """Whose fix it is; empty for all fixes together."""
    fix: Fix
    log_ratios: tuple[tuple[float, ...], ...] = ()
    """For each pair of live processes, slice by slice: log of changed over unchanged throughput."""
    failure: str | None = None
    """Why it could not be run (any more)."""


class Gain(Struct, frozen=True, kw_only=True):
    """What a fix is worth: throughput with it over throughput without it, 95 % interval."""

    speedup: float
    low: float
    high: float
    basis: Literal["measured", "estimated"]
