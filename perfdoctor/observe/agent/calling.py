"""What a jitted call takes of the host for the trees that it is given and returns.

Modules of equinox are taken apart and put together in Python, in milliseconds where a model has
many layers, and its `filter_jit` waits for what it has called. A replay, whose arguments are flat,
has nothing of that.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any, NamedTuple

from perfdoctor.observe.agent.arrays import is_host_array
from perfdoctor.observe.agent.outline import Outline

CALLS = 7
"""Calls that are timed."""
TRIPS, SIZE = 20, 256
"""Products of matrices of that size, which take some milliseconds: less may be computed before a
call returns, as a small program of the CPU is."""
Jit = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


class Calling(NamedTuple):
    """A jitted call, as a user would make it with these trees."""

    trees_ms: float = 0.0
    """How much longer it takes for the trees than for their arrays alone."""
    waits: bool = False
    """Whether it returns when its results are computed, not before."""


def calling(jax: Any, trees: Any) -> Calling:
    """Measured by a function that returns what it is given, each array with one element. Where that
    can't be done, as if it took nothing, which is near for most programs.

    `trees`: with outlines in place of arrays.
    """
    with suppress(Exception), jax.disable_jit(False):
        array = jax.numpy.zeros(())

        def small(leaf: Any) -> Any:
            return array if isinstance(leaf, Outline) or is_host_array(leaf) else None

        given = jax.tree_util.tree_map(small, trees)
        jit, flat = jit_for(jax, given), jax.tree_util.tree_leaves(given)
        trees_ms = max(0.0, call_ms(jit, given) - call_ms(jax.jit, flat))
        return Calling(trees_ms, waits=jit is not jax.jit and returns_late(jax, jit))
    return Calling()


def jit_for(jax: Any, trees: Any) -> Jit:
    """With which a user would jit a function of such arguments."""
    equinox = sys.modules.get("equinox")
    if equinox is None:
        return jax.jit  # type: ignore[no-any-return]

    def is_module(node: Any) -> bool:
        return isinstance(node, equinox.Module)

    nodes = jax.tree_util.tree_leaves(trees, is_leaf=is_module)
    jit: Jit = equinox.filter_jit if any(map(is_module, nodes)) else jax.jit
    return jit


def call_ms(jit: Jit, given: Any) -> float:
    """What a call takes of a function, jitted so, that returns what it is given."""

    def same(tree: Any) -> Any:
        return tree

    jitted, found = jit(same), []
    jitted(given)
    for _ in range(CALLS):
        begin = time.perf_counter()
        jitted(given)
        found.append(time.perf_counter() - begin)
    return median(found) * 1e3


def returns_late(jax: Any, jit: Jit) -> bool:
    """Whether a call of a function, jitted so, returns when its result is computed."""

    def loop(array: Any) -> Any:
        return jax.lax.fori_loop(0, TRIPS, lambda _, each: each @ array / SIZE, array)

    jitted, array = jit(loop), jax.numpy.ones((SIZE, SIZE))
    jitted(array).block_until_ready()
    return bool(jitted(array).is_ready())
