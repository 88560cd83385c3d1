"""Times the garbage collector through `gc.callbacks`."""

import gc
import linecache
import sys
import threading
import time
from typing import Any

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.schema.recording import CollectionEvent, Recording


class GarbageWatch:
    """A callback of the collector that writes down each run of it."""

    def __init__(self) -> None:
        self.events: list[CollectionEvent] = []
        self._start_ns = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._start_ns = time.time_ns()
            return
        end_ns = time.time_ns()
        caller = sys._getframe().f_back  # none while the interpreter ends
        while caller is not None and caller.f_code.co_filename in OWN_FILES:
            caller = caller.f_back
        frame = (
            (caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_qualname)
            if caller
            else ("", 0, "")
        )
        self.events.append(
            CollectionEvent(
                generation=info["generation"],
                start_ns=self._start_ns,
                end_ns=end_ns,
                collected=info["collected"],
                frame=frame,
                source="",
                thread=threading.get_ident(),
            )
        )

    def with_sources(self) -> list[CollectionEvent]:
        """The events so far, each with the line of code that it began in."""
        for event in self.events:
            event.source = linecache.getline(event.frame[0], event.frame[1]).strip()
        return self.events

    def install(self) -> None:
        """First in the list, so that the time of other callbacks is counted too."""
        gc.callbacks.insert(0, self)

    def remove(self) -> None:
        """No longer; in a fork, say, that has no one to tell."""
        if self in gc.callbacks:
            gc.callbacks.remove(self)


def note_heap(recording: Recording) -> None:
    """What the collector has to look through; that takes about 20 ms for a million objects."""
    recording.live_objects = len(gc.get_objects())
    recording.frozen_objects = gc.get_freeze_count()
    recording.gc_thresholds = gc.get_threshold()
