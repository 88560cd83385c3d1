"""A first look at the program's calls, for one that ends before it is steady.

What it takes is little: some calls are probed, and the others timed.
"""

import math
import time
from typing import Any

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.roles import Probe, step_of
from perfdoctor.observe.agent.span import Span
from perfdoctor.observe.agent.timing import Timer
from perfdoctor.schema.recording import Frame

OWN_FILES.add(__file__)
MOST_TIMED = 20_000
"""Calls that are timed: a program may go on for minutes until it is steady, and make millions."""


class Glance:
    """Makes the program's calls from early on, until something better looks at them."""

    def __init__(self, jax: Any, stacks: dict[str, list[list[Frame]]]) -> None:
        """`stacks`: from where functions are called, by their names; those that are seen are added
        to it.
        """
        self.begin_ns = time.time_ns()
        self.prober = Prober(jax, stacks=stacks)
        self.timer = Timer(jax, math.inf)

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call."""
        if not self.prober.done.is_set():
            return self.prober(function, args, kwargs)
        if len(self.timer.calls) >= MOST_TIMED:
            return function.jitted(*args, **kwargs)
        return self.timer(function, args, kwargs)

    def told(self) -> tuple[Span, Probe] | None:
        """The time of a step and its calls, once the program has ended; None if it made too few."""
        self.prober.calls = [each for each in self.prober.calls if each.end_ns]
        if self.prober.failure is not None or not self.timer.end():
            return None
        return step_of(self.timer, self.prober)
