"""What a controlled program answers when it was told to run some steps."""

from msgspec import Struct


class Slice(Struct, frozen=True, kw_only=True):
    """One uninterrupted piece of a run, from idle to idle."""

    steps: int
    samples: int
    wall_s: float
    cpu_s: float
    """Of the training process, all threads."""
    compiles: int

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.samples / self.wall_s
