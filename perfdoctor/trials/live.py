"""A child that a trial keeps alive: its launch, its log, why it ended, its end."""

import sys
from pathlib import Path
from typing import Any, Self

from perfdoctor.processes import ProcessGroups, out_of_memory
from perfdoctor.protocol import RAISED
from perfdoctor.schema.launch import Launch

NO_PREALLOCATION = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""By default a process takes three quarters of an accelerator's memory at its start, and none could
live beside it; so each takes what it needs."""
KILLED = -9
"""The exit status of a process that SIGKILL has ended."""


class WorkerEnded(Exception):
    """The process ended when it was to run, or its change can't be made; the message says why."""


class OutOfTime(WorkerEnded):
    """It lives, but the budget does not suffice for what it was to do."""


class Live:
    """One live process of a pair; it ends with the block, and its folder goes with it."""

    def __init__(self, groups: ProcessGroups) -> None:
        self._groups = groups
        self._folder = groups.folder()

    def _start(self, launch: Launch, **streams: Any) -> None:
        """Launch it; what it writes goes to its log, but for other `streams`."""
        with self._log.open("wb") as log:
            self._child = self._groups.spawn(
                [sys.executable, *launch.command],
                env={**NO_PREALLOCATION, **launch.env},
                cwd=launch.folder,
                **{"stdout": log, "stderr": log, **streams},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        if self._child in self._groups:
            self._groups.end(self._child)
        self._groups.discard(self._folder)

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _why_ended(self) -> WorkerEnded:
        """What its log, its own note and its status say."""
        code, raised = self._child.returncode, self._folder / RAISED
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        lines += [raised.read_text()] if raised.exists() else []
        if exhausted := out_of_memory(lines):
            return WorkerEnded(f"out of memory: {exhausted}")
        if code == KILLED:
            return WorkerEnded("killed, as the kernel does when memory runs out")
        return WorkerEnded(lines[-1] if lines else f"ended with status {code}")
