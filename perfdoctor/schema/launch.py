"""How a target is started: the same for observing and for trials."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Launch:
    """A Python module run as a program, as `python -m` does."""

    module: str
    arguments: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    """The whole environment of the process."""
