"""Hears the calls of functions that were jitted before anyone listened.

A jitted function that was called once goes on without Python: no wrapper that is made later sees
its calls. But jax calls two functions of its own, by their names in a module: one after each call,
where there is one (`post_hook`, which its search for NaNs uses; 0.4 µs a call), and one for each
call that is not in its cache of fast calls. While we listen, we stand in their places, and keep
that cache empty. Nothing is traced or compiled anew, but such a call takes 60 µs longer; calls
that are only timed are heard of by the first way. Afterwards all is as it was. The names are jax's
own, and may change with any version: `Unreachable` says that one is missing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast, runtime_checkable

from perfdoctor.injection.calls import OWN_FILES, Function, Hear, Hearing

OWN_FILES.add(__file__)
RUNS = ("_run_python_pjit", "_python_pjit_helper")
"""What makes a call that is not in the cache: since jax 0.10, and in 0.8."""
INFERS, KEEPS = "_infer_params", "_get_fastpath_data"
"""What is told which function that is; and what returns that which is kept in the cache."""
CACHES = ("_cpp_pjit_cache_fun_only", "_cpp_pjit_cache_explicit_attributes")
OF_JAX = ("jax.", "jaxlib.")
"""Modules whose functions are jax's own: `jnp.where` and the like, which make no step."""


class Unreachable(Exception):
    """What was jitted before can't be heard; the message says why."""


@runtime_checkable
class HearsAfter(Protocol):
    """Needs to be told of calls only when they have been made."""

    def after(self, function: Function, outputs: Any) -> None:
        """A call has just returned."""


class Reached:
    """A jitted function as its listener knows it: to be called, and to be traced."""

    def __init__(self, pjit: Any, fun: Any, info: Any, calls: "Pending") -> None:
        self._pjit, self._fun, self._jit_info, self._calls = pjit, fun, info, calls
        self.__wrapped__ = fun
        self.__name__ = str(getattr(fun, "__name__", "?"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call that was heard; in the thread that made it."""
        return self._calls.made()

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As jax has it; where it was traced before, its Python code does not run again."""
        return self._pjit.jit_trace(self, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As jax has it."""
        return self.trace(*args, **kwargs).lower()


class Pending(threading.local):
    """The calls of a thread that are heard, and not yet made; one may be made while another is
    traced.
    """

    def __init__(self) -> None:
        self.stack: list[list[Any]] = []
        self.info: Any = None
        """Of the function that was called last: itself, and what `jax.jit` was given."""
        self.inside = False
        """Whether this thread is in our own code, whose calls are not the program's."""

    def made(self) -> Any:
        """The outputs of the newest call, which is made now."""
        call = self.stack[-1]
        call[1] = call[0]()
        return call[1][0]


class Reach(Hearing):
    """Whoever is set as `hear` hears the calls of all jitted functions, old and new, until None is.

    Raises:
        Unreachable: when it is made, if jax is not as we know it.
    """

    __slots__ = ("_api", "_before", "_functions", "_hear", "_pending", "_pjit", "_runs")

    def __init__(self, jax: Any) -> None:
        self._hear: Hear | None = None
        self._functions: dict[tuple[int, int], Function] = {}
        self._pending = Pending()
        self._before: dict[str, Any] = {}
        from jax._src import api, pjit

        self._pjit, self._api = pjit, api
        self._runs = next((name for name in RUNS if hasattr(pjit, name)), "")
        missing = [n for n in (INFERS, KEEPS, *CACHES, "jit_trace") if not hasattr(pjit, n)]
        if not self._runs or missing:
            raise Unreachable(
                f"jax {jax.__version__} can't be asked for the calls of functions that were jitted "
                "before; please run the program with `perfdoctor check`"
            )

    @property
    def hear(self) -> Hear | None:
        """Who makes the calls at present."""
        return self._hear

    @hear.setter
    def hear(self, hear: Hear | None) -> None:
        self._let_go()
        self._hear = hear
        if hear is None:
            return
        if isinstance(hear, HearsAfter) and hasattr(self._api, "_post_hook_state"):
            self._hear_after(hear)
        else:
            self._hear_before()

    def _hear_before(self) -> None:
        pjit = self._pjit
        run, infer = getattr(pjit, self._runs), getattr(pjit, INFERS)
        pending, is_new = self._pending, self._runs == RUNS[0]

        def inferred(fun: Any, info: Any, *rest: Any) -> Any:
            pending.info = (fun, info)
            return infer(fun, info, *rest)

        def run_new(p: Any, flat: Any, fun: Any, args: Any, kwargs: Any) -> Any:
            known, info = pending.info or (None, None)
            info = info if known is fun else None
            return self._heard(fun, info, args, kwargs, lambda: run(p, flat, fun, args, kwargs))

        def run_old(fun: Any, info: Any, *args: Any, **kwargs: Any) -> Any:
            return self._heard(fun, info, args, kwargs, lambda: run(fun, info, *args, **kwargs))

        self._replace(INFERS, inferred)
        self._replace(self._runs, run_new if is_new else run_old)
        self._replace(KEEPS, lambda *arguments, **named: None)
        self._forget_fast_calls()

    def _hear_after(self, hear: Any) -> None:
        """`hear`: a `HearsAfter`."""
        state, pending = self._api._post_hook_state, self._pending
        shared = self._before["post_hook"] = state.value
        own = threading.local()
        """Of the threads that have a hook of their own, mostly none; it comes before the shared."""

        def after(jitted: Any, args: Any, kwargs: Any, outputs: Any) -> None:
            before, is_over = getattr(own, "before", shared), self._hear is not hear
            if is_over and hasattr(own, "before"):
                state.set_local(before)
            if before is not None:
                before(jitted, args, kwargs, outputs)
            if is_over:
                return
            fun, info = getattr(jitted, "_fun", None), getattr(jitted, "_jit_info", None)
            if not pending.inside and info is not None and not is_of_jax(fun):
                with self._ours():
                    hear.after(self._function(fun, info), outputs)

        run = getattr(self._pjit, self._runs)

        def run_then(*args: Any, **kwargs: Any) -> Any:
            """Of each thread's first call: jax may have given it a hook of its own in it."""
            outputs = run(*args, **kwargs)
            if state.value is not after:
                own.before = state.value
                state.set_local(after)
            return outputs

        self._replace(self._runs, run_then)
        state.set_global(after)
        self._forget_fast_calls()

    def _heard(self, fun: Any, info: Any, args: Any, kwargs: Any, make: Callable[[], Any]) -> Any:
        """Make a call through the listener; jax wants all that `make` returns."""
        hear, pending = self._hear, self._pending
        if hear is None or info is None or pending.inside or is_of_jax(fun):
            return make()
        call: list[Any] = [self._outside(make), None]
        pending.stack.append(call)
        try:
            with self._ours():
                hear(self._function(fun, info), args, kwargs)
        finally:
            pending.stack.pop()
        return make() if call[1] is None else call[1]  # whoever hears may not have made it

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """What is called meanwhile in this thread are no calls of the program."""
        pending = self._pending
        before, pending.inside = pending.inside, True
        try:
            yield
        finally:
            pending.inside = before

    def _outside(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """The program's call within what is ours: what that calls is to be heard again."""
        pending = self._pending

        def made() -> Any:
            pending.inside = False
            try:
                return make()
            finally:
                pending.inside = True

        return made

    def _function(self, fun: Any, info: Any) -> Function:
        key = (id(fun), id(info))
        found = self._functions.get(key)
        if found is None:
            found = Function(Reached(self._pjit, fun, info, self._pending))
            self._functions[key] = found  # it holds both, so that the numbers stay theirs
        return found

    def _replace(self, name: str, function: Any) -> None:
        self._before[name] = getattr(self._pjit, name)
        setattr(self._pjit, name, function)

    def _let_go(self) -> None:
        """All as it was before."""
        if "post_hook" in self._before:
            self._api._post_hook_state.set_global(self._before.pop("post_hook"))
        heard_before = bool(self._before)
        while self._before:
            name, function = self._before.popitem()
            setattr(self._pjit, name, function)
        if heard_before:
            self._forget_fast_calls()  # those that were made slow are made fast again

    def _forget_fast_calls(self) -> None:
        for name in CACHES:
            getattr(self._pjit, name).clear()

    def forget(self) -> None:
        """Hold none of the program's functions any longer."""
        self.hear = None
        self._functions.clear()


def is_of_jax(fun: Any) -> bool:
    """Whether a function is part of jax itself."""
    return cast(str, getattr(fun, "__module__", None) or "").startswith(OF_JAX)
