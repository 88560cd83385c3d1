"""The files and words by which perfdoctor and its code in an observed program talk to each other.

The program is started with orders in its environment (see `perfdoctor.injection`). What our code in
it has to say, it leaves as files in the folder that the orders name; perfdoctor answers with files
there. Only the standard library is imported here: what is imported in the program is part of its
start.
"""

from typing import Any

Orders = dict[str, Any]
"""With them comes the `environment` before the program's first line."""

STOP = "stop"
"""perfdoctor asks the program to stop."""
RAISED = "raised"
"""The exception that ended the program, in one line."""
ATTACHED = "attached"
"""The program has imported jax."""
LEFT = "left"
"""The program is about to end."""
BROKEN = "broken"
"""The traceback of what went wrong in our code; the program goes on without it."""

OPENED, CLOSED, RECORDED, AGAIN = "open-{}", "closed-{}", "recorded-{}", "again-{}"
"""Files of the n-th window: tracing has begun, and has ended; the recording is written; the answer
of perfdoctor to it, by which another window follows."""
TURN, TIMED = "turn-{}", "timed-{}"
"""Files of the n-th turn, which may be asked for between a window's recording and the answer to it:
perfdoctor asks what a step takes now; the milliseconds, or nothing if no steps were made."""
KNOWN = "known"
"""A word of an answer: the calls of the step need no second look."""

RECORDING = "recording.json"
"""All that the agent has recorded; written beside it first, and renamed."""
PROGRAMS, PREVIEW, TRACE, EXECUTABLES = "programs", "preview", "trace", "executables"
"""Folders: the programs that JAX compiled, as StableHLO; a trace of a few steps before the window;
the trace of the newest window; XLA's account of the programs, as optimised HLO."""
DIGEST = "digest.json"
"""What the digest has made of the recording and its traces, for the observation."""
LOG = "log"
"""What the program wrote, where its output goes nowhere else; and what reading its trace said."""


def answer(next_window_s: float, *, is_step_known: bool) -> str:
    """The text of perfdoctor's answer to a window: the length of the next one, in seconds."""
    return f"{next_window_s} {KNOWN if is_step_known else ''}"


def understood(text: str) -> tuple[float, bool]:
    """What an answer says: the next window's length in seconds, and whether the step is known."""
    length_s, *known = text.split()
    return float(length_s), known == [KNOWN]
