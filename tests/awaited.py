"""What tests of other processes wait for."""

import time
from contextlib import suppress

import psutil

LIMIT_S = 60.0
"""Generous: reached only where something is wrong."""


def await_status(process: psutil.Process, status: str) -> None:
    """Signals take effect a moment after they are sent."""
    until = time.monotonic() + LIMIT_S
    while process.status() != status:
        assert time.monotonic() < until, process.status()
        time.sleep(0.01)


def await_end(process: psutil.Process) -> None:
    """Until it is gone, or at most a zombie that nobody collects."""
    with suppress(psutil.NoSuchProcess):
        await_status(process, psutil.STATUS_ZOMBIE)
