"""Whether the program has come to rest, so that a window may be opened."""

import time

from perfdoctor.observe.agent.compilation import CompilationWatch

QUIET_S = 1.0
"""Seconds without a compilation after which the run counts as steady."""
CALM_S, CALM_SHARE = 2.0, 0.25
"""A run that has compiled for less than this share of the last seconds is as calm as it gets."""
RESTLESS_S = 5.0
"""Seconds that a run which compiles one function again and again is given to come to rest."""


def is_at_rest(compilation: CompilationWatch) -> bool:
    """Whether the run is as steady as it will get."""
    return is_steady(compilation) or is_calm(compilation) or is_restless(compilation)


def is_steady(compilation: CompilationWatch) -> bool:
    """Whether nothing has compiled for a while."""
    return compilation.quiet_for_s() > QUIET_S


def is_calm(compilation: CompilationWatch) -> bool:
    """Whether it only compiles now and then, as a program does that runs operation by operation."""
    return compilation.share_of_last(CALM_S) < CALM_SHARE


def is_restless(compilation: CompilationWatch) -> bool:
    """Whether it compiles one function again and again, and will not come to rest."""
    return has_compiled_for(compilation, RESTLESS_S) and compilation.never_rests()


def has_compiled_for(compilation: CompilationWatch, seconds: float) -> bool:
    """Whether the first compilation is so long ago."""
    events = compilation.events
    return bool(events) and time.time_ns() - events[0].end_ns >= seconds * 1e9
