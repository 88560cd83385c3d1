"""Programs of some jitted functions, whose calls are heard in this process."""

from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import jax

from perfdoctor.injection.calls import Hear, Hearing, wrap_makers
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.roles import Probe, probe_of

Program = Callable[[Any], Iterator[object]]
"""Is given jax's makers, and yields after each step."""
STEPS = 12


def makers(hear: Hear | None = None) -> tuple[Any, Hearing]:
    """jax's makers, wrapped."""
    made, hearing = SimpleNamespace(jit=jax.jit, pmap=jax.pmap), Hearing()
    wrap_makers(made, hearing)
    hearing.hear = hear
    return made, hearing


def probed(program: Program, steps: int = STEPS) -> tuple[Prober, Probe | None]:
    """So many steps of a program, and what they are told to be."""
    prober = Prober(jax)
    made, hearing = makers(prober)
    for _ in islice(program(made), steps):
        pass
    hearing.hear = None
    assert prober.failure is None, prober.failure
    return prober, probe_of(prober)


def leaves(program: Program, steps: int = STEPS) -> dict[str, Any]:
    """Of the calls of a step, the arguments by their names."""
    _, probe = probed(program, steps)
    assert probe is not None
    return {leaf.argument: leaf for call in probe.calls for leaf in call.leaves}


def roles(program: Program, steps: int = STEPS) -> dict[str, str]:
    """By the names of the arguments."""
    return {name: leaf.role for name, leaf in leaves(program, steps).items()}
