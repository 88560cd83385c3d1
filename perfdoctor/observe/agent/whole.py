"""Traces a function that dispatches its step operation by operation as one program, and saves it.

That runs the program's own Python once more, with tracers for arrays. So it is done when the
program has ended; what the function would print is kept quiet, and what it would write is refused.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perfdoctor.observe.agent.arrays import is_host_array, raw_bytes
from perfdoctor.observe.agent.calling import calling
from perfdoctor.observe.agent.eager import Candidate
from perfdoctor.observe.agent.exporting import exported
from perfdoctor.observe.agent.manifest import made_in_code, write_manifest
from perfdoctor.observe.agent.outline import Arguments
from perfdoctor.observe.agent.refusal import Unwanted, reason
from perfdoctor.observe.agent.silence import Context, silent
from perfdoctor.observe.agent.whole_program import Traced, traced_whole
from perfdoctor.schema.capture import (
    AS_IT_IS,
    WHOLE,
    WHOLE_BEGUN,
    WHOLE_TOLD,
    Capture,
    SavedCall,
    SavedLeaf,
)

WRITES = frozenset("wax+")
"""Letters in the mode of an opened file that is written."""
REFUSED = ("subprocess.Popen", "socket.connect", "os.remove", "os.rename", "os.rmdir", "os.mkdir")
"""Audit events of Python for what a function may not do while it is traced."""


def save_first_of(
    candidates: Sequence[Candidate],
    jax: Any,
    folder: Path,
    settings: Mapping[str, Any],
    env_at_start: Mapping[str, str],
    deaf: Callable[[], Context],
) -> None:
    """The outermost of the functions that jax takes as a whole; and tell which, or why none."""
    if not candidates:
        return
    begun = folder / WHOLE_BEGUN
    begun.touch()
    told = candidates[0].eager
    for candidate in candidates:
        try:
            with silent(), deaf():
                traced = save_whole(
                    jax, candidate.arguments, folder / WHOLE, settings, env_at_start
                )
                with writing_nothing():  # the user's compilation cache neither
                    as_called = calling(jax, traced.trees)
        except Exception as error:
            if not told.why_not:
                told = replace(told, why_not=reason(error))
        else:
            told = replace(
                candidate.eager,
                is_saved=True,
                holds=traced.holds,
                trees_ms=as_called.trees_ms,
                call_waits=as_called.waits,
            )
            break
    (folder / WHOLE_TOLD).write_bytes(msgspec.json.encode(told))
    begun.unlink()


def save_whole(
    jax: Any,
    arguments: Arguments,
    folder: Path,
    settings: Mapping[str, Any],
    env_at_start: Mapping[str, str],
) -> Traced:
    """Save the function as a capture of one call in `folder`. Raises what tracing or exporting it
    raises.
    """
    with writing_nothing(), jax.disable_jit(False):
        traced = traced_whole(jax, arguments)
        program = exported(jax, traced.closed, [None] * len(traced.leaves))
    folder.mkdir(exist_ok=True)  # one before it may have failed half-way
    (folder / f"{AS_IT_IS}.bin").write_bytes(program)
    env, unset = made_in_code(env_at_start)
    call = SavedCall(
        function=arguments.code.co_name,
        leaves=tuple(
            saved(folder, n, leaf, result)
            for n, (leaf, result) in enumerate(zip(traced.leaves, traced.replaced_by, strict=True))
        ),
        donated=tuple(result is not None for result in traced.replaced_by),
        programs={AS_IT_IS: f"{AS_IT_IS}.bin"},
        results=len(traced.closed.out_avals),
    )
    cores = tuple(sorted(os.sched_getaffinity(0)))
    capture = Capture(calls=(call,), settings=dict(settings), env=env, unset=unset, cores=cores)
    write_manifest(folder, capture)
    return traced


def saved(folder: Path, number: int, leaf: Any, result: int | None) -> SavedLeaf:
    """An argument, with its values if it is one of the host; `result`: what replaces it."""
    if is_host_array(leaf):
        file = f"{number}.raw"
        (folder / file).write_bytes(raw_bytes(leaf))
        return SavedLeaf(
            role="constant", kind="host", shape=leaf.shape, dtype=str(leaf.dtype), file=file
        )
    data = leaf.data or leaf
    return SavedLeaf(
        role="constant" if result is None else "state",
        source=None if result is None else (0, result),
        kind="key" if leaf.key else "device",
        shape=tuple(data.shape),
        dtype=str(data.dtype),
        key=leaf.key,
        low=data.low,
        high=data.high,
    )


@contextmanager
def writing_nothing() -> Iterator[None]:
    """Unwanted is raised where something would be written, removed, sent or started meanwhile."""
    is_on = True

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if not is_on:
            return
        if event in REFUSED or (event == "open" and WRITES & set(str(arguments[1] or ""))):
            raise Unwanted(f"it does more than compute: {event}")

    sys.addaudithook(refuse)  # it stays, for what little is left of the program
    try:
        yield
    finally:
        is_on = False
