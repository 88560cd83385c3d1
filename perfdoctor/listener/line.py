"""What a listener tells every so many iterations, and the line that it prints."""

from msgspec import Struct

NAME = "perfdoctor.line/1"


class Collected(Struct, frozen=True, kw_only=True):
    """The collections of one generation."""

    generation: int
    count: int
    total_ms: float


class Line(Struct, frozen=True, kw_only=True):
    """The iterations since the line before; times are means of these."""

    schema: str = NAME
    time: float
    """Unix time in seconds, when it was told."""
    iteration: int
    """Of the newest; the first is 1."""
    iterations: int
    """That are timed in this line."""
    etl_ms: float
    """Waiting for the next batch."""
    iteration_ms: float
    """All of an iteration; evaluations are left out."""
    samples_per_s: float | None
    """None: how many examples an iteration has is not known."""
    batches_per_s: float
    score: float | None
    """Of the newest iteration."""
    collections: tuple[Collected, ...] = ()
    """Of Python's garbage collector."""
    compiles: int = 0
    """Programs that jax compiled."""
    evaluation_ms: float = 0.0
    """In evaluations, in all."""

    def __str__(self) -> str:
        parts = [
            f"ETL: {self.etl_ms:.1f} ms",
            f"iteration {self.iteration}",
            f"iteration time: {self.iteration_ms:.1f} ms",
        ]
        if self.samples_per_s is not None:
            parts.append(f"samples/sec: {self.samples_per_s:.1f}")
        parts.append(f"batches/sec: {self.batches_per_s:.1f}")
        if self.score is not None:
            parts.append(f"score: {self.score:.4g}")
        collected = ", ".join(map(in_brackets, self.collections))
        parts += [f"GC: {collected or 'none'}", f"compiles: {self.compiles}"]
        return "; ".join(parts) + ";"


def in_brackets(each: Collected) -> str:
    """[gen0: 2 (0.3 ms)]."""
    digits = 1 if each.total_ms < 10 else 0
    return f"[gen{each.generation}: {each.count} ({each.total_ms:.{digits}f} ms)]"
