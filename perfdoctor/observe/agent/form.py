"""What the arguments of a jitted function look like, leaf by leaf."""

import inspect
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from perfdoctor.injection.calls import OWN_FILES, Function

OWN_FILES.add(__file__)


@dataclass(frozen=True)
class Form:
    """What the arguments of a function look like, leaf by leaf."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    shardings: tuple[str, ...]
    donated: tuple[bool, ...]

    @property
    def from_host(self) -> frozenset[Hashable]:
        """The shapes and types of the arguments that are host arrays."""
        looks = zip(self.kinds, self.shapes, self.dtypes, strict=True)
        return frozenset((shape, dtype) for kind, shape, dtype in looks if kind == "host")


def dynamic(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without the static ones."""
    places = dynamic_places(function, args)
    names = set(options_of(function, "static_argnames"))
    return (
        tuple(args[place] for place in places),
        {name: each for name, each in kwargs.items() if name not in names},
    )


def dynamic_places(function: Function, args: tuple[Any, ...]) -> list[int]:
    """Those of the positional arguments that are not static."""
    count = len(args)
    static = {n if n >= 0 else n + count for n in options_of(function, "static_argnums")}
    names = set(options_of(function, "static_argnames"))
    if names:
        static |= {n for n, name in enumerate(parameters(function)) if name in names}
    return [n for n in range(count) if n not in static]


def options_of(function: Function, name: str) -> tuple[Any, ...]:
    """What `jax.jit` was given, or has inferred from it."""
    info = getattr(function.jitted, "_jit_info", None)
    return tuple(getattr(info, name, ()) or ())


def parameters(function: Function) -> list[str]:
    """The names of the function's positional parameters, as far as they are known."""
    try:
        found = inspect.signature(function.jitted).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in found if each.kind in positional]


def form_of(jax: Any, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Form:
    """What the arguments of a function that are not static look like."""
    places, positional = dynamic_places(function, args), parameters(function)
    names = [positional[n] if n < len(positional) else f"args[{n}]" for n in places]
    args, kwargs = dynamic(function, args, kwargs)
    leaves = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
    return Form(
        names=tuple(name_of(jax, path, names) for path, _ in leaves),
        kinds=tuple(kind_of(jax, leaf) for _, leaf in leaves),
        shapes=tuple(tuple(getattr(leaf, "shape", ())) for _, leaf in leaves),
        dtypes=tuple(str(getattr(leaf, "dtype", type(leaf).__name__)) for _, leaf in leaves),
        sizes_bytes=tuple(int(getattr(leaf, "nbytes", 0) or 0) for _, leaf in leaves),
        shardings=tuple(sharding_of(leaf) for _, leaf in leaves),
        donated=donated_of(jax, function, dict(zip(places, args, strict=True)), kwargs),
    )


def donated_of(
    jax: Any, function: Function, by_place: dict[int, Any], kwargs: dict[str, Any]
) -> tuple[bool, ...]:
    """Whether the call may write its results there, for each array among its arguments."""
    numbers = options_of(function, "donate_argnums")
    names = options_of(function, "donate_argnames")
    given = [(place in numbers, each) for place, each in by_place.items()]
    given += [(name in names, kwargs[name]) for name in sorted(kwargs)]
    return tuple(donated for donated, each in given for _ in jax.tree_util.tree_leaves(each))


def name_of(jax: Any, path: tuple[Any, ...], names: list[str]) -> str:
    """An argument's name and the path in its tree: params['w']. `names`: of the positional ones."""
    which, rest = path[1], path[2:]
    index = getattr(which, "idx", None)
    first = str(getattr(which, "key", which)) if index is None else names[index]
    return first + str(jax.tree_util.keystr(rest))


def kind_of(jax: Any, leaf: Any) -> str:
    """device, host, scalar or key."""
    if isinstance(leaf, jax.Array):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return "key" if is_key else "device"
    return "scalar" if is_number(leaf) else "host"


def is_number(leaf: Any) -> bool:
    """Whether an argument is a number of Python; those of numpy are arrays, though some are of a
    class of Python's too.
    """
    return isinstance(leaf, bool | int | float | complex) and not hasattr(leaf, "dtype")


def sharding_of(leaf: Any) -> str:
    """How an array is split over several devices; empty for one."""
    sharding = getattr(leaf, "sharding", None)
    several = sharding is not None and len(sharding.device_set) > 1
    return str(getattr(sharding, "spec", sharding)) if several else ""
