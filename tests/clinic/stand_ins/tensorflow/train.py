"""Checkpoints: counted, and nothing is written."""

from types import SimpleNamespace
from typing import Any


class Checkpoint:
    """Of no state: programs of JAX save theirs beside it."""

    def __init__(self, **state: Any) -> None:
        self.count = 0

    @property
    def save_counter(self) -> Any:
        """How often it was saved."""
        return SimpleNamespace(numpy=lambda: self.count)


class CheckpointManager:
    """Names for one checkpoint after the other."""

    def __init__(
        self, checkpoint: Checkpoint, directory: str, max_to_keep: int, checkpoint_name: str
    ) -> None:
        self._checkpoint = checkpoint
        self._prefix = f"{directory}/{checkpoint_name}"
        self.checkpoints: list[str] = []

    @property
    def latest_checkpoint(self) -> str | None:
        """The last name."""
        return self.checkpoints[-1] if self.checkpoints else None

    def save(self) -> str:
        """The next name."""
        self._checkpoint.count += 1
        self.checkpoints.append(f"{self._prefix}-{self._checkpoint.count}")
        return self.checkpoints[-1]
