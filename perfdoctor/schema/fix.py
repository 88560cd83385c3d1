"""What can be done about a finding, what trying it showed, and what it is worth."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Scalar = bool | int | float | str
LEAST_FOR_WORK = 0.25
"""Gain from which on a fix is worth more than a line: one that changes what is trained costs a
search for other hyper-parameters, one that is to be worked out costs a day; a choice."""
MIN_GAIN = 0.05
"""The smallest gain that makes a finding, as a share, if nobody says otherwise."""
Speeds = Literal["steps", "launch"]
Ratio = Annotated[float, Meta(gt=0)]
"""A ratio of two throughputs: 2 is twice as fast."""


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
    step: dict[str, Scalar] = {}
    """About the step as it is replayed alone: `loading` ("thread", "process", "nowhere"), `waits`
    (share of the steps), `resident` ("state", "ahead", "all"), `donated`, `collecting` (the share
    of it that is left), `sleeping` (too), `restless` (0), `handling` (0: the host does nothing but
    load), `compiled` ("once"), `program` ("float32", "inexact", "no-callbacks", "kept",
    "unchecked", "together", "batch-8-to-32", "copies-16"), `growing` (0, with it: more examples are
    loaded in the same time), `jitted` ("whole": the function that dispatches its operations as one
    program), `others` (with it: the share of the step that the device computes in other jitted
    functions)."""
    is_bound: bool = False
    """Whether it shows what can be gained at most, and how is still to be worked out."""
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

    def least_gain(self, min_gain: float) -> float:
        """What it must gain to be worth a finding: more where it takes more than a line."""
        is_bound = self.change is not None and self.change.is_bound
        costs_more = is_bound or self.changes_results == "training"
        return max(min_gain, LEAST_FOR_WORK) if costs_more else min_gain

    def is_worth(self, gain: "Gain", min_gain: float) -> bool:
        """Whether this gain of it makes a finding. Of a bound it must be sure that the run loses
        something, and likely that this is worth the work: how much of it will be gained is open.
        """
        least = self.least_gain(min_gain)
        sure = least if self.changes_results == "training" else min_gain
        return gain.is_worth(sure) and gain.speedup >= 1 + least


class Tried(Struct, frozen=True, kw_only=True):
    """What trying a fix showed."""

    check: str
    """Whose fix it is; empty for all fixes together."""
    fix: Fix
    log_ratios: tuple[tuple[float, ...], ...] = ()
    """For each pair of live processes, slice by slice: log of changed over unchanged throughput."""
    log_ratios_at_most: tuple[tuple[float, ...], ...] = ()
    """The same without what the fix may not need: a larger batch is tried with loading that grows
    with it, and here with loading that does not."""
    failure: str | None = None
    """Why it could not be run (any more)."""
    basis: Literal["measured", "replayed", "estimated"] = "measured"
    """On the target itself; on its captured step; or on one whose time is not near enough to the
    target's to count as a measurement."""
    after: tuple[str, ...] = ()
    """Checks whose fixes were in place on both sides: what is gained on top of them."""
    emulation_error: float | None = 0.0
    """How well a replay emulates the run: the logarithm of the emulated step time over the observed
    one; None where the unchanged step could not be replayed, and the observed time stands for
    it."""


class Gain(Struct, frozen=True, kw_only=True):
    """What a fix is worth: throughput with it over throughput without it, 95 % interval."""

    speedup: Ratio
    low: Ratio
    high: Ratio
    basis: Literal["measured", "replayed", "estimated"]

    def is_worth(self, min_gain: float) -> bool:
        """Whether it is both reliable and large enough to report; `min_gain` 0.05 is 5 %.

        Where it was not measured on the target itself, it must be so large even at its low end:
        what a replay does not have, or a timeline does not show, may be in the fix's way.
        """
        reliable = self.low > 1 if self.basis == "measured" else self.low >= 1 + min_gain
        return reliable and self.speedup >= 1 + min_gain
