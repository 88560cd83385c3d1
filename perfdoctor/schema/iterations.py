"""What a listener saw of a loop, in which nothing was traced.

Times are in milliseconds an iteration, means, unless the field's name says otherwise.
"""

from msgspec import Struct


class Iterations(Struct, frozen=True, kw_only=True):
    """The iterations of a loop, as its listener timed them."""

    count: int
    """That were timed; those in which something compiled at the begin are not among them."""
    seconds: float
    """That they took, without evaluations."""
    time_ms: float
    median_ms: float
    """From the end of an iteration to the end of the next; the host may run ahead of the device."""
    p95_ms: float
    etl_ms: float
    """Waiting for the next batch."""
    idle_etl_ms: float | None = None
    """Of `etl_ms`, waits at whose end all that the loop had dispatched was computed; None: it was
    not told, since no score was given."""
    idle_share: float | None = None
    """Of the waits, those of which that is so."""
    step_ms: float | None = None
    """From such a wait's end until the score of its iteration was computed; the median of those of
    which was told."""
    gc_ms: float = 0.0
    """In Python's garbage collector."""
    batch_size: float | None = None
    """Examples an iteration; the mean."""
    evaluation_s: float = 0.0
    """In evaluations, which are in none of the other times."""

    @property
    def samples_per_s(self) -> float | None:
        """Examples a second."""
        return None if self.batch_size is None else self.batch_size / self.time_ms * 1e3
