"""New data that a thread puts on the device a step ahead, as a prefetching loader does."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from perfdoctor.ahead import Ahead
from perfdoctor.replay.step import Outputs, ReadyCall

Called = Callable[[Outputs], tuple[Any, ...]]


@contextmanager
def fed(calls: Sequence[ReadyCall]) -> Iterator[list[Called]]:
    """The calls of a step, with their new data put ahead where they are to be."""
    with ExitStack() as stack:

        def ahead(call: ReadyCall) -> Called:
            ready = stack.enter_context(Ahead(placed(call)))
            return lambda latest: call(latest, next(ready))

        yield [ahead(call) if call.put_ahead else call for call in calls]


def placed(call: ReadyCall) -> Iterator[tuple[Any, ...]]:
    """The batches of a call, with their new data put on the device."""
    while True:
        yield tuple(
            jax.device_put(each) if n in call.put_ahead else each
            for n, each in enumerate(next(call.batches))
        )
