"""How a target is started: the same for observing and for trials."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """A Python program, run as `python COMMAND…` would run it."""

    command: tuple[str, ...]
    """What stands behind the interpreter: ("-m", "package.module", …) or ("train.py", …)."""
    env: dict[str, str] = field(default_factory=dict)
    """The whole environment of the process."""
    folder: Path | None = None
    """Its working directory; None: ours."""
    output: int | None = None
    """The file descriptor that its output goes to, beside our standard input for it; None: a log of
    its own, and no input."""
