"""Has jax trace a function as if it kept all results that `jax.checkpoint` computes again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.rewriting import equations_in

CHECKPOINTED = "remat2"
"""The operation in which `jax.checkpoint` puts a function."""


def checkpointed(closed: Any) -> Any | None:
    """The operation that computes again for a gradient what it has computed; None if the program
    has none.
    """
    for equation in equations_in(closed):
        if equation.primitive.name == CHECKPOINTED and equation.params.get("differentiated"):
            return equation.primitive
    return None


def kept(
    jax: Any, operation: Any, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The program that jax traces without `jax.checkpoint`."""
    with inlined(operation), of_its_own(jax):
        return function.jitted.trace(*args, **kwargs).jaxpr


@contextmanager
def inlined(operation: Any) -> Iterator[None]:
    """What is traced in this thread has, in place of the operation, what it holds."""
    from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

    thread, bind = threading.get_ident(), operation.bind

    def bind_within(*args: Any, **params: Any) -> Any:
        if threading.get_ident() != thread:
            return bind(*args, **params)
        return jaxpr_as_fun(ClosedJaxpr(params["jaxpr"], ()))(*args)

    operation.bind = bind_within
    try:
        yield
    finally:
        operation.bind = bind


def of_its_own(jax: Any) -> Any:
    """A context whose traces jax keeps apart from the program's: it looks for one among those with
    the same settings. This one only decides of what jax warns.
    """
    is_usual = jax.config.jax_numpy_rank_promotion == "allow"
    return jax.numpy_rank_promotion("warn" if is_usual else "allow")
