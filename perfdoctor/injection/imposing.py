"""Changes that are made from inside a program, whatever its own code does."""

import gc
import sys
from collections.abc import Callable
from typing import Any


def impose(jax: Any, settings: dict[str, Any]) -> None:
    """Make JAX settings, and let the program's own code not unmake them."""
    update = jax.config.update

    def update_others(name: str, value: Any) -> None:
        if name not in settings:
            update(name, value)

    for name, value in settings.items():
        update(name, value)
    if settings:
        jax.config.update = update_others


def once_set_up(*, freeze: bool, skip: bool) -> Callable[[], object]:
    """What is to be done with the garbage collector when all that a set-up makes is alive."""

    def change_collecting() -> None:
        if freeze:
            gc.collect()
            gc.freeze()
        if skip:
            skip_collect(gc.collect)

    return change_collecting


def skip_collect(collect: Callable[..., int]) -> None:
    """Put something that does nothing in the place of `gc.collect`, wherever it was imported to."""

    def collects_nothing(generation: int = 2) -> int:
        return 0

    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in names.items() if value is collect]:
            names[name] = collects_nothing
