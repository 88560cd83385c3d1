"""Has what the agent recorded read and understood, by a process that may load jaxlib."""

import time
from pathlib import Path

import msgspec
import psutil

from perfdoctor.processes import ProcessGroups, python_module
from perfdoctor.protocol import DIGEST, LOG, RECORDING
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.recording import Recording

READING_S = 4.0
"""What reading a trace takes."""


def read_recording(folder: Path) -> Recording | None:
    """What the agent left, if it came so far."""
    try:
        return msgspec.json.decode((folder / RECORDING).read_bytes(), type=Recording)
    except OSError:
        return None


def digested(folder: Path, groups: ProcessGroups, until: float) -> Digest | None:
    """Have the recording understood by a process that may load jaxlib.

    `until`: instant of time.monotonic() at which that is given up: a trace of millions of events.
    """
    with (folder / LOG).open("ab") as log:
        child = groups.spawn(
            python_module("perfdoctor.observe.digest", str(folder)), stdout=log, stderr=log
        )
        try:
            child.wait(max(READING_S, until - time.monotonic()))
        except psutil.TimeoutExpired:
            log.write(b"the budget ended before its trace was read; give it more\n")
        groups.end(child, grace_s=0.1)
    try:
        return msgspec.json.decode((folder / DIGEST).read_bytes(), type=Digest)
    except OSError:
        return None
