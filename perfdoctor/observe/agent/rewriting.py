"""Changes the operations of a traced program, those in its loops and branches too."""

from collections.abc import Callable, Iterator
from typing import Any

CALLBACKS = ("pure_callback", "io_callback", "debug_callback", "debug_print")
"""Operations that call back to Python."""
PRODUCTS = ("dot_general", "conv_general_dilated")
"""Operations that have a precision."""
WIDE = ("float64", "complex128")
"""Types of which narrower ones are tried."""

Rule = Callable[[Any], list[Any] | None]
"""The equations in place of one; None: it stays."""


def rewritten(closed: Any, rule: Rule) -> Any:
    """A closed jaxpr with the rule applied to each of its equations."""
    return closed.replace(jaxpr=rewritten_open(closed.jaxpr, rule))


def rewritten_open(jaxpr: Any, rule: Rule) -> Any:
    """The same of an open program; of its effects, those remain that what is left of it has."""
    equations = [new for equation in jaxpr.eqns for new in changed(equation, rule)]
    effects = {effect for equation in equations for effect in equation.effects}
    return jaxpr.replace(eqns=equations, effects=effects & set(jaxpr.effects))


def changed(equation: Any, rule: Rule) -> list[Any]:
    """One equation, or those in its place; jaxprs among its parameters are rewritten."""
    instead = rule(equation)
    if instead is not None:
        return instead
    if not any(True for _ in jaxprs_in(equation.params)):
        return [equation]
    params = {name: changed_value(value, rule) for name, value in equation.params.items()}
    inner = {effect for each in jaxprs_in(params) for effect in each.effects}
    return [equation.replace(params=params, effects=set(equation.effects) & inner)]


def changed_value(value: Any, rule: Rule) -> Any:
    """A parameter of an equation."""

    def again(program: Any) -> Any:
        is_closed = hasattr(program, "jaxpr")
        return rewritten(program, rule) if is_closed else rewritten_open(program, rule)

    return changed_value_by(again, value)


def changed_value_by(again: Callable[[Any], Any], value: Any) -> Any:
    """A parameter of an equation, with the jaxprs in it changed, open or closed."""
    if hasattr(value, "jaxpr") or hasattr(value, "eqns"):
        return again(value)
    if type(value) in (tuple, list):  # no named tuple, which holds other things
        return type(value)(changed_value_by(again, each) for each in value)
    return value


def jaxprs_in(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation."""
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if hasattr(each, "jaxpr") or hasattr(each, "eqns"):
                yield each


def equations_in(jaxpr: Any) -> Iterator[Any]:
    """All operations of a program, however deep."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for each in jaxprs_in(equation.params):
            yield from equations_in(each)


def holds(jaxpr: Any, names: tuple[str, ...]) -> bool:
    """Whether an operation of one of these names is in it, however deep."""
    return any(equation.primitive.name in names for equation in equations_in(jaxpr))


def without_callbacks(closed: Any) -> Any:
    """What callbacks return is zero, and none is made."""
    from jax.extend import core
    from jax.extend.core import primitives

    broadcast = primitives.broadcast_in_dim_p

    def zeros(equation: Any) -> list[Any] | None:
        if equation.primitive.name not in CALLBACKS:
            return None
        return [
            equation.replace(
                invars=[core.Literal(variable.aval.dtype.type(0), scalar(variable.aval))],
                outvars=[variable],
                primitive=broadcast,
                params={"shape": variable.aval.shape, "broadcast_dimensions": (), "sharding": None},
                effects=set(),
            )
            for variable in equation.outvars
        ]

    return rewritten(closed, zeros)


def scalar(aval: Any) -> Any:
    """The type of one element."""
    from jax.core import ShapedArray

    return ShapedArray((), aval.dtype)


def with_default_precision(closed: Any) -> Any:
    """Matrix products and convolutions in the precision that is usual on the device."""

    def inexact(equation: Any) -> list[Any] | None:
        if equation.primitive.name not in PRODUCTS:
            return None
        return [equation.replace(params={**equation.params, "precision": None})]

    return rewritten(closed, inexact)


def is_exact(jaxpr: Any) -> bool:
    """Whether a product asks for more than the usual precision."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in inner.eqns:
        asked = equation.params.get("precision")
        if equation.primitive.name in PRODUCTS and "HIGH" in str(asked):
            return True
        if any(is_exact(each) for each in jaxprs_in(equation.params)):
            return True
    return False


def is_wide(jaxpr: Any) -> bool:
    """Whether it computes in double precision somewhere."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    places = [*inner.invars, *inner.constvars]
    places += [variable for equation in inner.eqns for variable in equation.outvars]
    return any(str(getattr(place.aval, "dtype", "")) in WIDE for place in places) or any(
        is_wide(each) for equation in inner.eqns for each in jaxprs_in(equation.params)
    )
