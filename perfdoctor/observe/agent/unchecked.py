"""Has a step leave out what `jax.experimental.checkify` checks in it.

A checked function returns an `Error` beside its results. Where nobody reads that, XLA drops all
that computes it, in loops as well.
"""

import sys
from collections.abc import Collection
from typing import Any


def errors_among(jax: Any, results: Any) -> tuple[int, ...]:
    """The places of what belongs to an `Error`, among the leaves of a function's results."""
    checkify = sys.modules.get("jax.experimental.checkify")
    if checkify is None:  # who has not imported it checks nothing
        return ()

    def is_error(value: Any) -> bool:
        return isinstance(value, checkify.Error)

    places: list[int] = []
    count = 0
    for value in jax.tree_util.tree_leaves(results, is_leaf=is_error):
        leaves = len(jax.tree_util.tree_leaves(value))
        if is_error(value):
            places.extend(range(count, count + leaves))
        count += leaves
    return tuple(places)


def unchecked(jax: Any, closed: Any, errors: Collection[int]) -> Any:
    """The program that returns zeros at these places."""
    import jax.numpy as jnp
    from jax.extend.core import jaxpr_as_fun

    def computed(*values: Any) -> list[Any]:
        results = jaxpr_as_fun(closed)(*values)
        return [jnp.zeros_like(each) if n in errors else each for n, each in enumerate(results)]

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
    return jax.make_jaxpr(computed)(*shapes)
