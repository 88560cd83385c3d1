"""Wraps what `jax.jit` and `jax.pmap` return, so that calls can be heard of; transparent otherwise.

One wrapper serves the probe of an observed run and the counting of a trial. While nobody listens, a
call costs a look at one attribute.
"""

import functools
import itertools
from collections.abc import Callable
from types import MethodType
from typing import Any, cast

MAKERS = ("jit", "pmap")
"""The functions of jax that make jitted functions."""
OWN_FILES = {__file__}
"""Files of the wrapper, and of those who make the calls for it, which add themselves: their frames
are no part of the program's stacks."""
NUMBERS = itertools.count()
"""Numbers the functions in the order in which they are made."""


class Function:
    """What `jax.jit` returned for one function of the program."""

    __slots__ = ("jitted", "name", "number")

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted
        self.name = str(getattr(jitted, "__name__", "?"))
        self.number = next(NUMBERS)

    @property
    def origin(self) -> tuple[str, Any]:
        """What two functions have in common that were jitted from the same lines of code: the name,
        and the code.
        """
        inner = getattr(self.jitted, "__wrapped__", None)
        while isinstance(inner, functools.partial):
            inner = inner.func
        return self.name, getattr(inner, "__code__", None)


Hear = Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]
"""Is given a call to make; returns what the jitted function returned."""


class Hearing:
    """Who makes the calls at present; None: the program itself, unheard."""

    __slots__ = ("hear",)

    def __init__(self) -> None:
        self.hear: Hear | None = None


def wrap_makers(jax: Any, hearing: Hearing) -> None:
    """Have all that `jax.jit` and `jax.pmap` make from now on tell `hearing` of its calls."""
    for name in MAKERS:
        setattr(jax, name, wrapped_maker(getattr(jax, name), hearing))


def wrapped_maker(make: Any, hearing: Hearing) -> Any:
    """`jax.jit`, whose products are wrapped."""

    @functools.wraps(make)
    def make_wrapped(*arguments: Any, **named: Any) -> Any:
        return wrapped(make(*arguments, **named), hearing)

    return make_wrapped


def wrapped(jitted: Any, hearing: Hearing) -> Any:
    """Something that looks and acts like the jitted function."""
    if not hasattr(jitted, "lower"):  # jit(static_argnums=…) makes a decorator
        return lambda fun: wrapped(jitted(fun), hearing)
    return Wrapped(jitted, hearing)


class Wrapped:
    """A jitted function that tells of its calls.

    It is no Python function with attributes: `jax.jit` copies these, and a function that is jitted
    twice would be lowered as the inner one.
    """

    __slots__ = ("__weakref__", "_perfdoctor_function", "_perfdoctor_hearing")

    def __init__(self, jitted: Any, hearing: Hearing) -> None:
        object.__setattr__(self, "_perfdoctor_function", Function(jitted))
        object.__setattr__(self, "_perfdoctor_hearing", hearing)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hear = self._perfdoctor_hearing.hear
        if hear is None:
            return self._perfdoctor_function.jitted(*args, **kwargs)
        return hear(self._perfdoctor_function, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._perfdoctor_function.jitted, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._perfdoctor_function.jitted, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._perfdoctor_function.jitted, name)

    def __dir__(self) -> list[str]:
        return dir(self._perfdoctor_function.jitted)

    def __repr__(self) -> str:
        return repr(self._perfdoctor_function.jitted)

    def __reduce__(self) -> tuple[Any, ...]:  # where it is loaded, nobody listens
        return unwrapped, (self._perfdoctor_function.jitted,)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return cast("str | None", self._perfdoctor_function.jitted.__doc__)

    @property
    def __module__(self) -> str:  # type: ignore[override]
        return str(self._perfdoctor_function.jitted.__module__)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As jax has it; so for the others, that a check of protocols looks for in the class."""
        return self._perfdoctor_function.jitted.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As jax has it."""
        return self._perfdoctor_function.jitted.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As jax has it."""
        return self._perfdoctor_function.jitted.eval_shape(*args, **kwargs)


def unwrapped(jitted: Any) -> Any:
    """What a pickled function is loaded as."""
    return jitted
