"""Makes programs of a jitted function, as it is and changed, that another process can run."""

import re
from typing import Any

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.narrowing import in_32_bits, narrow_dtype
from perfdoctor.observe.agent.rewriting import equations_in
from perfdoctor.schema.calls import shared_lengths
from perfdoctor.schema.capture import LARGER_BATCHES


def narrowed(jax: Any, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The program that jax traces for single precision, within `x64_off`."""

    def narrow(leaf: Any) -> Any:
        dtype = None if isinstance(leaf, type) else narrow_dtype(jax, leaf)
        return leaf if dtype is None else jax.ShapeDtypeStruct(leaf.shape, dtype)

    arguments = jax.tree_util.tree_map(narrow, args)
    named = jax.tree_util.tree_map(narrow, kwargs)
    return in_32_bits(jax, function.jitted.trace(*arguments, **named).jaxpr)


def short_axes(arrays: list[tuple[tuple[int, ...], int]]) -> list[int]:
    """Lengths below the smallest good batch that the new arrays share: one of them is the batch.

    `arrays`: their shapes, and bytes.
    """
    return sorted(length for length in shared_lengths(arrays) if 0 < length < LARGER_BATCHES[0])


def lengthened(
    jax: Any,
    function: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    chosen: set[int],
    length: int,
    larger: int,
) -> Any:
    """The program that jax traces for new data with one axis of another length.

    `chosen`: the identities of the new arrays among the arguments. Of two axes that are as long,
    the batch's is the one that no loop goes over.
    """

    def traced(which: int) -> Any:
        def longer(leaf: Any) -> Any:
            if id(leaf) not in chosen or length not in leaf.shape[:2]:
                return leaf
            axes = [n for n, size in enumerate(leaf.shape[:2]) if size == length]
            axis = axes[min(which, len(axes) - 1)]
            shape = (*leaf.shape[:axis], larger, *leaf.shape[axis + 1 :])
            return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

        arguments = jax.tree_util.tree_map(longer, args)
        named = jax.tree_util.tree_map(longer, kwargs)
        return function.jitted.trace(*arguments, **named).jaxpr

    leaves = [each for each in jax.tree_util.tree_leaves((args, kwargs)) if id(each) in chosen]
    is_doubtful = any(each.shape[:2].count(length) > 1 for each in leaves)
    if not is_doubtful:
        return traced(0)
    try:
        outer = traced(0)
    except Exception:  # whatever the user's code raises for shapes that don't fit
        return traced(1)
    return traced(1) if loops(outer, larger) else outer


def loops(closed: Any, trips: int) -> bool:
    """Whether a program holds a loop of so many trips."""
    scans = (each for each in equations_in(closed) if each.primitive.name == "scan")
    return any(each.params["length"] == trips for each in scans)


def together(jax: Any, closed: Any, fresh: list[int], count: int) -> Any:
    """The program that answers so many requests in one call."""
    from jax.extend.core import jaxpr_as_fun

    axes = [0 if n in fresh else None for n in range(len(closed.in_avals))]
    shapes = [
        jax.ShapeDtypeStruct((count, *aval.shape) if n in fresh else aval.shape, aval.dtype)
        for n, aval in enumerate(closed.in_avals)
    ]
    return jax.make_jaxpr(jax.vmap(jaxpr_as_fun(closed), in_axes=axes))(*shapes)


def at_once(jax: Any, closed: Any, changing: list[int], count: int) -> Any:
    """The program that computes so many steps side by side, and returns what one of them does.

    `changing`: the arguments that each of them has of its own. XLA can't see that they are alike.
    """
    import jax.numpy as jnp
    from jax.extend.core import jaxpr_as_fun

    def is_key(value: Any) -> bool:
        return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))

    def hidden(values: list[Any]) -> list[Any]:
        arrays = iter(jax.lax.optimization_barrier([each for each in values if not is_key(each)]))
        return [each if is_key(each) else next(arrays) for each in values]

    def copied(value: Any) -> Any:
        same = jnp.broadcast_to(value, (count, *value.shape))
        return jax.random.split(value, count) if is_key(value) and not value.shape else same

    def computed(*values: Any) -> list[Any]:
        own = hidden([copied(values[n]) if n in changing else values[n] for n in all_of_them])
        return [each[0] for each in hidden(jax.vmap(jaxpr_as_fun(closed), in_axes=axes)(*own))]

    all_of_them = range(len(closed.in_avals))
    axes = [0 if n in changing else None for n in all_of_them]
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
    return jax.make_jaxpr(computed)(*shapes)


def x64_off(jax: Any) -> Any:
    """A context in which jax computes in 32 bits; older versions keep it among experiments."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(False)
    from jax.experimental import disable_x64

    return disable_x64()


def exported(jax: Any, closed: Any, shardings: list[Any]) -> bytes:
    """A traced program in a form that another process can run."""
    import jax.export as export
    from jax.extend.core import jaxpr_as_fun

    several = [len(getattr(each, "device_set", ())) > 1 for each in shardings]
    options: dict[str, Any] = {}
    if any(several):
        given = zip(shardings, several, strict=True)
        options["in_shardings"] = tuple(each if split else None for each, split in given)
    flat = jax.jit(jaxpr_as_fun(closed), **options)
    avals = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
        for aval in closed.in_avals
    ]
    allowed: list[Any] = []
    while True:
        try:
            return bytes(export.export(flat, disabled_checks=allowed)(*avals).serialize())
        except ValueError as error:
            names = set(re.findall(r"'([\w.$]+)'|\"([\w.$]+)\"|@([\w.$]+)", str(error)))
            found = {next(filter(None, each)) for each in names}
            more = [export.DisabledSafetyCheck.custom_call(name) for name in sorted(found)]
            if "custom call" not in str(error) or not found or allowed:
                raise
            allowed = more
