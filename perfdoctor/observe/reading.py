"""Has what the agent recorded read and understood, by a process that may load jaxlib."""

import time
from pathlib import Path

import msgspec
import psutil

from perfdoctor.processes import ProcessGroups, python_module
from perfdoctor.protocol import DIGEST, LOG, RECORDING
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.steps import UNREAD

READING_S = 4.0
"""What reading a trace takes."""
WITHOUT_TRACE_S = 4.0
"""What is given on top to a recording whose trace takes longer."""


def read_recording(folder: Path) -> Recording | None:
    """What the agent left, if it came so far."""
    try:
        return msgspec.json.decode((folder / RECORDING).read_bytes(), type=Recording)
    except OSError:
        return None


def digested(folder: Path, groups: ProcessGroups, until: float) -> Digest | None:
    """Have the recording understood by a process that may load jaxlib; without its trace, if that
    is not read in time, as one of millions of events.

    `until`: instant of time.monotonic() at which the trace is given up.
    """
    earlier = digest_in(folder)
    limit_s = max(READING_S, until - time.monotonic())
    in_time = ends_in_time(folder, groups, limit_s)
    if not in_time and (earlier is None or earlier.steps is None):
        ends_in_time(folder, groups, WITHOUT_TRACE_S, UNREAD)
    return digest_in(folder)


def ends_in_time(folder: Path, groups: ProcessGroups, limit_s: float, *why_untraced: str) -> bool:
    """Have the recording understood, without its trace if there is a reason for that."""
    command = python_module("perfdoctor.observe.digest", str(folder), *why_untraced)
    with (folder / LOG).open("ab") as log:
        child = groups.spawn(command, stdout=log, stderr=log)
        try:
            child.wait(limit_s)
            return True
        except psutil.TimeoutExpired:
            log.write(f"{UNREAD}\n".encode())
            return False
        finally:
            groups.end(child, grace_s=0.1)


def digest_in(folder: Path) -> Digest | None:
    """What was understood, if it came so far."""
    try:
        return msgspec.json.decode((folder / DIGEST).read_bytes(), type=Digest)
    except OSError:
        return None
