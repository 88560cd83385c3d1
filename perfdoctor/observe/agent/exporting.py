"""Makes programs of a jitted function, as it is and changed, that another process can run."""

import re
from typing import Any

from perfdoctor.injection.calls import Function
from perfdoctor.schema.calls import shared_lengths
from perfdoctor.schema.capture import LARGER_BATCHES


def narrowed(jax: Any, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The program that jax traces for single precision."""

    def narrow(leaf: Any) -> Any:
        is_array = hasattr(leaf, "dtype") and not isinstance(leaf, type)
        if not is_array or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        narrow_dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, narrow_dtype)

    with x64_off(jax):
        arguments = jax.tree_util.tree_map(narrow, args)
        named = jax.tree_util.tree_map(narrow, kwargs)
        return function.jitted.trace(*arguments, **named).jaxpr


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

    `chosen`: the identities of the new arrays among the arguments.
    """

    def longer(leaf: Any) -> Any:
        if id(leaf) not in chosen or length not in leaf.shape[:2]:
            return leaf
        axis = leaf.shape.index(length)
        shape = (*leaf.shape[:axis], larger, *leaf.shape[axis + 1 :])
        return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

    arguments = jax.tree_util.tree_map(longer, args)
    named = jax.tree_util.tree_map(longer, kwargs)
    return function.jitted.trace(*arguments, **named).jaxpr


def together(jax: Any, closed: Any, fresh: list[int], count: int) -> Any:
    """The program that answers so many requests in one call."""
    from jax.extend.core import jaxpr_as_fun

    axes = [0 if n in fresh else None for n in range(len(closed.in_avals))]
    shapes = [
        jax.ShapeDtypeStruct((count, *aval.shape) if n in fresh else aval.shape, aval.dtype)
        for n, aval in enumerate(closed.in_avals)
    ]
    return jax.make_jaxpr(jax.vmap(jaxpr_as_fun(closed), in_axes=axes))(*shapes)


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
