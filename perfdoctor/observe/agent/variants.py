"""The programs of a captured call: as it is, and changed as trials need it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.exporting import (
    at_once,
    exported,
    lengthened,
    narrowed,
    short_axes,
    together,
    x64_off,
)
from perfdoctor.observe.agent.recomputing import checkpointed, kept
from perfdoctor.observe.agent.refusal import Unwanted, reason
from perfdoctor.observe.agent.rewriting import (
    CALLBACKS,
    PRODUCTS,
    holds,
    is_exact,
    is_wide,
    with_default_precision,
    without_callbacks,
)
from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.unchecked import unchecked
from perfdoctor.schema.capture import (
    AS_IT_IS,
    AT_ONCE,
    COPIES,
    KEPT,
    LARGER_BATCHES,
    NO_CALLBACKS,
    UNCHECKED,
    SavedCall,
    batch_program,
    growth,
)

OWN_FILES.add(__file__)
TOGETHER = "together"
"""The program for the requests of several threads at once."""
SINGLE = "float32"
"""The program in single precision."""
MOST_COPIED_BYTES = 2**28
"""The largest state of several steps at once, in bytes. Copying it is part of each such step."""
Makers = dict[str, Callable[[], Any]]
"""By the name of a program: traces or rewrites it."""


@dataclass(frozen=True)
class TracedCall:
    """A call of the program, with what jax traces for it."""

    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: int
    """The number of the call in the step."""
    values: list[Any]
    """Its arguments, leaf by leaf."""
    closed: Any
    """The closed jaxpr."""
    errors: tuple[int, ...] = ()
    """Those of its results that tell what `checkify` has found."""

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies matrices: what it takes is more than to apply an update."""
        return holds(self.closed, PRODUCTS)


@dataclass
class Variants:
    """Exports the programs of a step's calls."""

    jax: Any
    probe: Probe
    threads: int
    """Threads that make the calls."""
    failures: dict[str, str]
    """By program that could not be exported: why."""

    def exported(self, call: TracedCall) -> Iterator[tuple[str, bytes]]:
        """The name of each program, and itself as `jax.export` writes it; raises what keeps the one
        from being exported that the script runs.
        """
        shardings = [getattr(value, "sharding", None) for value in call.values]
        for name, make in self._wanted(call).items():
            try:
                with x64_off(self.jax) if name == SINGLE else nullcontext():
                    program = make()
                    if name != TOGETHER and len(self.probe.calls) > 1:
                        self._check_results(call, program)
                    content = exported(self.jax, program, shardings)
            except Exception as error:
                if name == AS_IT_IS:
                    raise
                self.failures[name] = reason(error)
            else:
                yield name, content

    def _wanted(self, call: TracedCall) -> Makers:
        """The program as it is, and changed where there is something to change."""
        closed, wanted = call.closed, Makers()
        calls_back = holds(closed, CALLBACKS)
        if not calls_back:
            wanted[AS_IT_IS] = lambda: closed
        else:
            self.failures[AS_IT_IS] = "it calls back to Python, which can't be exported"
            wanted[NO_CALLBACKS] = lambda: without_callbacks(closed)
        if is_exact(closed):
            wanted["inexact"] = lambda: with_default_precision(closed)
        if is_wide(closed):
            wanted[SINGLE] = lambda: narrowed(self.jax, call.function, call.args, call.kwargs)
        if calls_back:
            return wanted
        if (operation := checkpointed(closed)) is not None:
            made = (call.function, call.args, call.kwargs)
            wanted[KEPT] = lambda: kept(self.jax, operation, *made)
        if call.errors:
            wanted[UNCHECKED] = lambda: unchecked(self.jax, closed, call.errors)
        return wanted | self._with_more_data(call)

    def _with_more_data(self, call: TracedCall) -> Makers:
        """The programs for larger batches, and for the requests of several threads together."""
        leaves = self.probe.calls[call.place].leaves
        fresh = [n for n, leaf in enumerate(leaves) if leaf.role == "new" and leaf.shape]
        fresh = [n for n in fresh if leaves[n].kind in ("device", "host")]
        data, found = [n for n in fresh if not leaves[n].is_raw_key], Makers()
        if not data:
            return self._at_once(call)
        if self.threads > 1 and all(leaf.role != "state" for leaf in leaves):
            found[TOGETHER] = lambda: together(self.jax, call.closed, fresh, self.threads)
        for length in short_axes([(leaves[n].shape, leaves[n].bytes) for n in data]):
            for larger in LARGER_BATCHES:
                found[batch_program(length, larger)] = partial(
                    self._lengthened, call, data, length, larger
                )
        return found

    def _at_once(self, call: TracedCall) -> Makers:
        """The program for several steps at once, of a step that makes its own data."""
        leaves = self.probe.calls[call.place].leaves
        changing = [n for n, leaf in enumerate(leaves) if leaf.role == "state"]
        size = sum(leaves[n].bytes for n in changing)
        if not changing or self.threads > 1 or COPIES * size > MOST_COPIED_BYTES:
            return {}
        return {AT_ONCE: lambda: at_once(self.jax, call.closed, changing, COPIES)}

    def _lengthened(self, call: TracedCall, fresh: list[int], length: int, larger: int) -> Any:
        """The program for a larger batch.

        Host arrays whose values are the same in each step by chance, rewards that are all 1 say,
        are of the batch as well: where it can't be traced without them, they grow too.
        """
        leaves = self.probe.calls[call.place].leaves
        alike = [
            n
            for n, leaf in enumerate(leaves)
            if leaf.role == "constant" and leaf.kind == "host" and leaf.shape[:1] == (length,)
        ]
        made = (call.function, call.args, call.kwargs)
        chosen = {id(call.values[n]) for n in fresh}
        try:
            return lengthened(self.jax, *made, chosen, length, larger)
        except Exception:  # whatever the user's code raises for shapes that don't fit
            if not alike:
                raise
            chosen |= {id(call.values[n]) for n in alike}
            return lengthened(self.jax, *made, chosen, length, larger)

    def _check_results(self, call: TracedCall, program: Any) -> None:
        """Unwanted if a later call takes a result that has another shape or type now."""
        sources = {leaf.source for each in self.probe.calls for leaf in each.leaves}
        results = zip(call.closed.out_avals, program.out_avals, strict=True)
        for index, (was, now) in enumerate(results):
            if (call.place, index) in sources and was.shape != now.shape:
                raise Unwanted("what a call of the step hands to the next one grows with its data")


def grown_alike(calls: Sequence[SavedCall], multiplying: Collection[int]) -> list[SavedCall]:
    """The calls, without the programs for a larger batch that only some calls have of those which
    multiply matrices: another one draws as many examples as before.

    `multiplying`: the places of such calls in the step.
    """
    sizes = {name for call in calls for name in call.programs if growth(name) > 1}
    uneven = {
        name for name in sizes if any(name not in calls[place].programs for place in multiplying)
    }
    return [
        replace(
            call,
            programs={name: file for name, file in call.programs.items() if name not in uneven},
        )
        for call in calls
    ]


def donated_in(jax: Any, traced: Any, count: int) -> tuple[bool, ...]:
    """Whether the call may write its results there, for each array among its arguments."""
    found = tuple(bool(each.donated) for each in jax.tree_util.tree_leaves(traced.args_info))
    return found if len(found) == count else (False,) * count
