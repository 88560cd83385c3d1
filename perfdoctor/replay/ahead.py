"""New data that a thread puts on the device a step ahead, as a prefetching loader does."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import jax

from perfdoctor.replay.step import Outputs, ReadyCall

Called = Callable[[Outputs], tuple[Any, ...]]
AHEAD = 2
"""Steps whose data lie ready on the device."""
POLL_S = 0.1
"""Seconds between two looks at whether the thread is to end."""


@contextmanager
def fed(calls: list[ReadyCall]) -> Iterator[list[Called]]:
    """The calls of a step, with their new data put ahead where they are to be."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(fed_by_a_thread(call)) if call.put_ahead else call for call in calls
        ]


@contextmanager
def fed_by_a_thread(call: ReadyCall) -> Iterator[Called]:
    """A call whose new data come from a thread of its own."""
    ready: queue.Queue[tuple[Any, ...]] = queue.Queue(AHEAD)
    over = threading.Event()

    def put() -> None:
        while not over.is_set():
            placed = tuple(
                jax.device_put(each) if n in call.put_ahead else each
                for n, each in enumerate(call.fixed)
            )
            while not over.is_set():
                with suppress(queue.Full):
                    ready.put(placed, timeout=POLL_S)
                    break

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    try:
        yield lambda latest: call(latest, ready.get())
    finally:
        over.set()
        with suppress(queue.Empty):  # it may wait for room
            ready.get_nowait()
        thread.join()
