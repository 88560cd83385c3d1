"""What a function was called with: its arguments, with outlines in place of arrays of a device."""

import inspect
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from perfdoctor.observe.agent.arrays import bounds_of, is_host_array


@dataclass(frozen=True)
class Outline:
    """What an array on a device looks like; the array itself is not kept."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    low: int = 0
    high: int = 1
    """Bounds of an integer's values."""
    key: str = ""
    """The implementation of a key's generator; `data` is what it is made of."""
    data: "Outline | None" = None

    def aval(self, jax: Any) -> Any:
        """What jax traces in its place."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type)


@dataclass
class Arguments:
    """The arguments of one call of a function; of arrays on a device only their outlines."""

    code: CodeType
    globals: dict[str, Any]
    closure: tuple[Any, ...]
    by_name: dict[str, Any]


def arguments_of(jax: Any, frame: FrameType) -> Arguments | None:
    """What a call was given, as far as its names still stand for it; None if it can't be told."""
    code, names = frame.f_code, frame.f_locals
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return None
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    wanted = code.co_varnames[:count]
    if any(name not in names for name in (*wanted, *code.co_freevars)):
        return None
    return Arguments(
        code=code,
        globals=frame.f_globals,
        closure=tuple(outlined(jax, names[name]) for name in code.co_freevars),
        by_name={name: outlined(jax, names[name]) for name in wanted},
    )


def outlined(jax: Any, value: Any) -> Any:
    """A tree with outlines in place of its arrays; those of the host are copied."""

    def outline(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer):
            raise TypeError("it is traced already")
        if isinstance(leaf, jax.Array):
            return outline_of(jax, leaf)
        return leaf.copy() if is_host_array(leaf) else leaf

    return jax.tree_util.tree_map(outline, value)


def outline_of(jax: Any, array: Any) -> Outline:
    """The outline of an array on a device; whoever asks waits until integers are computed."""
    weak = bool(getattr(array.aval, "weak_type", False))
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = outline_of(jax, jax.random.key_data(array))
        name = str(jax.random.key_impl(array))
        return Outline(array.shape, array.dtype, weak, key=name, data=data)
    low, high = bounds_of(array)
    return Outline(array.shape, array.dtype, weak, low, high)
