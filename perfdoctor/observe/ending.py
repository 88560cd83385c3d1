"""How an observed run ended, and why."""

from pathlib import Path

from perfdoctor.observe.probing import describe
from perfdoctor.processes import out_of_memory
from perfdoctor.protocol import ATTACHED, LEFT, LOG, RAISED, STOP
from perfdoctor.schema.run import Failure


def why_failed(folder: Path, code: int | None, seconds: float) -> Failure | None:
    """Why a run that was not stopped by us ended other than well."""
    if code == 0:
        return None
    raised = folder / RAISED
    if code is None or (folder / STOP).exists():
        message = f"no training step within {seconds:.0f} s"
        return Failure(stage="run", kind="hung", message=message, seconds=seconds)
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    if raised.exists():
        lines.append(raised.read_text())
    if exhausted := out_of_memory(lines):
        return Failure(stage="run", kind="out-of-memory", message=exhausted, seconds=seconds)
    if code > 0 and lines:
        return Failure(stage="run", kind="raised", message=lines[-1], seconds=seconds)
    return Failure(stage="run", kind="killed", message=describe(code), seconds=seconds)


def ran_s(folder: Path, began: float, now: float) -> float:
    """How long a run took; it may have left while we were reading its trace."""
    left = folder / LEFT
    return (left.stat().st_mtime if left.exists() else now) - began


def how_ended(folder: Path, seconds: float) -> str:
    """A run that left nothing to read, in words."""
    if not (folder / ATTACHED).exists():
        return f"the program ended after {seconds:.1f} s, and never imported jax"
    return f"the program ended after {seconds:.1f} s, and jax computed nothing"


def last_line(folder: Path) -> str:
    """The last line of the log."""
    return "".join((folder / LOG).read_text(errors="replace").splitlines()[-1:])
