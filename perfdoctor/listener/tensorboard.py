"""Writes a listener's lines for TensorBoard."""

from pathlib import Path
from typing import Any

from perfdoctor.listener.line import Line
from perfdoctor.schema.errors import UsageError

SHOWN = ("iteration_ms", "etl_ms", "samples_per_s", "batches_per_s", "score", "compiles")


class TensorBoard:
    """Scalars `perfdoctor/iteration_ms` and so on, at the number of the iteration."""

    def __init__(self, where: Any) -> None:
        """Where to write.

        Args:
            where: a folder (needs the package tensorboardX: `pip install perfdoctor[tensorboard]`);
                or a writer that the program has already: of torch, tensorboardX, flax or clu.

        Raises:
            UsageError: it is neither, or the package is missing.
        """
        self._own = isinstance(where, str | Path)
        self._writer = opened(Path(where)) if self._own else where
        self._add = adder(self._writer)

    def __call__(self, line: Line) -> None:
        for name in SHOWN:
            value = getattr(line, name)
            if value is not None:
                self._add(f"perfdoctor/{name}", float(value), line.iteration)
        taken_ms = sum(each.total_ms for each in line.collections)
        self._add("perfdoctor/gc_ms", taken_ms / line.iterations, line.iteration)
        flush = getattr(self._writer, "flush", None)
        if flush is not None:
            flush()

    def close(self) -> None:
        """A writer of ours is closed; one of the program is not ours."""
        if self._own:
            self._writer.close()


def opened(folder: Path) -> Any:
    """A writer of tensorboardX."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise UsageError(
            "writing for TensorBoard needs tensorboardX; "
            'run pip install "perfdoctor[tensorboard]", or give the writer that you have'
        ) from None
    return SummaryWriter(str(folder))


def adder(writer: Any) -> Any:
    """How one scalar is written: (name, value, step)."""
    if hasattr(writer, "add_scalar"):  # torch, tensorboardX
        return writer.add_scalar
    if hasattr(writer, "write_scalars"):  # clu
        return lambda name, value, step: writer.write_scalars(step, {name: value})
    if hasattr(writer, "scalar"):  # flax
        return writer.scalar
    raise UsageError(
        f"{type(writer).__name__} is no writer for TensorBoard; expected a folder, or a writer "
        "with add_scalar, write_scalars or scalar"
    )
