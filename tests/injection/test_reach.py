"""Functions that were jitted, and called, before anyone listened."""

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax._src import pjit

from perfdoctor.injection.calls import Function
from perfdoctor.injection.reach import CACHES, INFERS, KEEPS, RUNS, Reach, Unreachable

X = jnp.ones(4)


@partial(jax.jit, donate_argnums=0, static_argnames="times")
def scaled(x: Any, y: Any, times: int = 1) -> tuple[Any, Any]:
    """As a step: a state, a batch, a static argument."""
    return x * 2 + y * times, y.sum()


@pytest.fixture
def reach() -> Iterator[Reach]:
    """Removed afterwards, whatever happens."""
    found = Reach(jax)
    yield found
    found.forget()


class Compiles(list[str]):
    """The names of what jax compiles."""

    def __call__(self, name: str, seconds: float, **details: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            self.append(str(details.get("fun_name")))


@pytest.fixture
def compiles() -> Iterator[Compiles]:
    """From here on."""
    from perfdoctor.observe.agent.compilation import no_longer

    found = Compiles()
    jax.monitoring.register_event_duration_secs_listener(found)
    yield found
    no_longer(jax, found, "event_duration")


def called(times: int = 3) -> Any:
    """The state after some steps."""
    state = jnp.zeros(4)
    for _ in range(times):
        state, _ = scaled(state, X, times=2)
    return state


def names_of_jax() -> list[Any]:
    """That are replaced for a while."""
    return [getattr(pjit, name) for name in (*RUNS, INFERS, KEEPS) if hasattr(pjit, name)]


def test_calls_are_heard_before_they_are_made_and_nothing_is_compiled_again(
    reach: Reach, compiles: Compiles
) -> None:
    expected = called()
    compiles.clear()
    heard: list[Any] = []

    def hear(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert not args[0].is_deleted()
        outputs = function.jitted(*args, **kwargs)
        heard.append((function.name, function.number, kwargs, args[0].is_deleted(), outputs))
        return outputs

    reach.hear = hear
    state = called()
    assert (state == expected).all()
    mine = [each for each in heard if each[0] == "scaled"]
    assert len(mine) == 3 and len({number for _, number, *_ in mine}) == 1
    assert all(kwargs == {"times": 2} and deleted for *_, kwargs, deleted, _ in mine)
    assert (mine[-1][-1][0] == expected).all()
    assert not any("scaled" in name for name in compiles)


def test_calls_are_heard_after_they_were_made(reach: Reach) -> None:
    called()

    class After:
        def __init__(self) -> None:
            self.heard: list[tuple[str, Any]] = []

        def __call__(self, function: Function, args: Any, kwargs: Any) -> Any:
            raise AssertionError("it needs not be asked before")

        def after(self, function: Function, outputs: Any) -> None:
            jnp.abs(X + 1)  # what it calls itself is no call of the program
            self.heard.append((function.name, outputs))

    after = After()
    setting = threading.Thread(target=lambda: setattr(reach, "hear", after))
    setting.start()
    setting.join()
    state = called()
    mine = [outputs for name, outputs in after.heard if name == "scaled"]
    assert len(mine) >= 2 and (mine[-1][0] == state).all()  # a thread's first may be missed
    reach.hear = None
    called()
    assert len([1 for name, _ in after.heard if name == "scaled"]) == len(mine)


def test_all_is_as_it_was_before() -> None:
    called()
    before = names_of_jax()
    reach = Reach(jax)
    reach.hear = lambda function, args, kwargs: function.jitted(*args, **kwargs)
    called()
    assert names_of_jax() != before
    reach.forget()
    assert names_of_jax() == before
    called()
    kept = [getattr(pjit, name).size() for name in CACHES]
    assert sum(kept) > 0  # calls are fast again


def test_it_can_be_traced_without_its_python_running_again(reach: Reach) -> None:
    runs: list[int] = []

    def add(x: Any) -> Any:
        runs.append(1)
        return x + 1

    step = jax.jit(add)
    step(X)
    texts: list[str] = []

    def hear(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        texts.append(str(function.jitted.trace(*args, **kwargs).jaxpr))
        return function.jitted(*args, **kwargs)

    reach.hear = hear
    step(X)
    assert "add" in texts[-1] and runs == [1]


def test_a_function_called_by_one_that_is_traced_is_heard_as_with_a_wrapper(reach: Reach) -> None:
    inner = jax.jit(lambda x: x * 3)
    inner(X)
    heard: list[str] = []

    def hear(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        heard.append(function.name)
        return function.jitted(*args, **kwargs)

    reach.hear = hear
    outer = jax.jit(lambda x: inner(x) + 1)
    assert (outer(X) == 4).all()
    assert (jax.grad(lambda x: inner(x).sum())(X) == 3).all()


def test_an_error_of_the_program_is_its_own(reach: Reach) -> None:
    reach.hear = lambda function, args, kwargs: function.jitted(*args, **kwargs)
    with pytest.raises(TypeError, match=r"abstract array|valid JAX type"):
        jax.jit(lambda x: x)("text")


def test_a_listener_that_makes_no_call_leaves_it_to_us(reach: Reach) -> None:
    reach.hear = lambda function, args, kwargs: None
    assert (called() == jnp.array(14.0)).all()


def test_another_jax_is_said_to_be_one() -> None:
    import sys

    modules = {"jax._src.pjit": SimpleNamespace()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax._src.pjit", modules["jax._src.pjit"])
        patch.setitem(sys.modules, "jax._src.pjit", modules["jax._src.pjit"])
        with pytest.raises(Unreachable, match="please run the program with `perfdoctor check`"):
            Reach(jax)
