"""The ways to measure what a change gains: on the program itself, or on its captured step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perfdoctor.schema.fix import Change, Speeds

PAIR_S = 14.0
"""What a pair takes: two launches, warm-up, slices. Measured on 2 cores: 8 to 16 s."""

Play = Callable[[Change, float], list[float]]
"""Measures a change until an instant of time.monotonic() at most: log ratios of throughput, or of
the time that runs take. Raises WorkerEnded, and ValidationError for a change that can't be made."""

RUNNABLE = ("env", "workload", "folders", "settings", "gc_freeze", "gc_skip_collect", "cores")
"""What can be changed about a program that is run again."""


@dataclass(frozen=True)
class Way:
    """One way to measure changes: on the program itself, or on its captured step."""

    play: Play
    can: Callable[[Change], bool]
    """Whether it can make a change."""
    basis: Literal["measured", "replayed", "estimated"] = "measured"
    emulation_error: float | None = 0.0
    at_most: Callable[[Change], Change | None] = lambda _: None
    """The same change, without what it may not need though it was measured with it; None if there
    is nothing of the kind."""
    after: Callable[[Change], Play] | None = None
    """Measures changes with another one in place on both sides; None if it can't."""
    pair_s: float = PAIR_S
    """What to expect of a pair."""
    renew: Callable[[], None] | None = None
    """Has the next pair measured in a process of its own; None: each pair is."""
    gives_way: bool = False
    """Whether the next way is asked that can make a change, where this one turns out not to."""


def on_the_program(plays: Mapping[Speeds, Play], set_in_code: Sequence[str] = ()) -> list[Way]:
    """The ways to measure what makes its steps, or its launch, faster.

    `set_in_code`: environment variables that the program sets itself, whatever it is launched with.
    """

    def way(speeds_up: Speeds, play: Play) -> Way:
        def can(change: Change) -> bool:
            is_made = any(getattr(change, name) for name in RUNNABLE)
            stays = is_made and not change.env.keys() & set(set_in_code)
            return stays and change.speeds_up == speeds_up

        return Way(play, can)

    return [way(speeds_up, play) for speeds_up, play in plays.items()]
