"""`PerformanceListener`: two lines in a loop tell what its iterations take, and why."""

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from perfdoctor.listener.batches import AsyncBatches, Batches
from perfdoctor.listener.clock import EVALUATING, Clock, Sums
from perfdoctor.listener.hooks import Collections, Compilations
from perfdoctor.listener.line import Line
from perfdoctor.listener.log import LOGGER, Log
from perfdoctor.listener.writers import JsonLines, Writer
from perfdoctor.schema.fix import MIN_GAIN

if TYPE_CHECKING:
    from perfdoctor.diagnosis.handle import Diagnosis
    from perfdoctor.diagnosis.shown import Shown
    from perfdoctor.schema.observation import Observation


class PerformanceListener:
    """Tells what the iterations of a loop take, how long they wait for data, what interrupts them.

    ```python
    listener = PerformanceListener(batch_size=128, every=10)
    for batch in listener.batches(loader):
        state, loss = train_step(state, batch)
        listener.step(score=loss)
    ```

    It never waits for the device, but for the score of an iteration of which it tells. It may be
    called from several threads, and there may be several of them. As a context manager it is closed
    at the end of the block; else by `close()`, or when it is collected.
    """

    def __init__(
        self,
        batch_size: int | None = None,
        every: int = 10,
        callback: Callable[[Line], None] | None = None,
        *,
        path: str | Path | None = None,
        writers: Sequence[Writer] = (),
    ) -> None:
        """What it tells, and to whom.

        Args:
            batch_size: examples an iteration; None: the length of the arrays of each batch.
            every: iterations from line to line.
            callback: is given each `Line`, in place of the log.
            path: a file to which each line is added as JSON.
            writers: others that are given each line: `Csv`, `Prometheus`, `TensorBoard`.
        """
        if every < 1:
            raise ValueError(f"every is {every}; expected 1 or more iterations from line to line")
        self._batch_size, self._every = batch_size, every
        self._tell = callback or Log()
        self._writers: list[Writer] = [*([JsonLines(path)] if path else []), *writers]
        self._complained = False
        self._clock = Clock()
        self._calm, self._compiling = Sums(), Sums()
        self._began_ns = time.time_ns()
        self._diagnosis: Diagnosis | None = None
        self._collections, self._compilations = Collections(), Compilations()
        self._collections.install()
        self._compilations.install()
        self._remove = weakref.finalize(self, removed, self._collections, self._compilations)
        self._gc_ns = 0

    def batches(self, loader: Any, *, evaluation: bool = False) -> Any:
        """The batches of any iterable, or asynchronous one, each wait for which is timed.

        Other methods of the loader go on working, those that save and set its state too.
        `evaluation`: what is done with them is no part of the training's iterations.
        """
        if evaluation:
            return self._evaluated(loader)
        is_async = hasattr(loader, "__aiter__") and not hasattr(loader, "__iter__")
        kind = AsyncBatches if is_async else Batches
        return kind(loader, self._clock.waited)

    def step(
        self, score: Any = None, batch_size: int | None = None, iteration: int | None = None
    ) -> None:
        """An iteration has ended.

        Args:
            score: its loss say; it is read only in the iterations that are told of.
            batch_size: examples of this iteration, where that differs.
            iteration: its number, where the loop counts by itself.
        """
        count = self._clock.step(batch_size or self._batch_size, score)
        number = count if iteration is None else iteration
        if count and not number % self._every:
            self._report(number, score)

    def as_hook(self) -> Callable[..., bool]:
        """For loops that call `hook(step)` after each step, as with `clu.periodic_actions`: it is
        called as `hook(step, t=None)`, and says whether a line was told.
        """

        def hook(step: int, t: float | None = None) -> bool:  # their signature
            self.step(iteration=int(step))
            return not int(step) % self._every

        return hook

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """What is done in the block is no part of any iteration: an evaluation, a checkpoint."""
        token = EVALUATING.set(EVALUATING.get() | {id(self._clock)})
        begin_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            EVALUATING.reset(token)
            self._clock.evaluated(time.perf_counter_ns() - begin_ns)

    def diagnose(
        self, budget_s: float = 120.0, min_gain: float = MIN_GAIN, *, show: bool = True
    ) -> "Diagnosis":
        """Examine the loop while it goes on; see `perfdoctor.diagnose`."""
        from perfdoctor.diagnosis import diagnose

        self._diagnosis = diagnose(budget_s, min_gain, show=show)
        return self._diagnosis

    def observation(self) -> "Observation":
        """What was seen: by the newest diagnosis, where that is done; else by listening."""
        from perfdoctor.listener.observed import observed

        if self._diagnosis is not None and self._diagnosis.has_seen_steps:
            return self._diagnosis.observation
        hooks = self._collections, self._compilations
        seen = self._calm if self._calm.iterations else self._compiling
        return observed(seen, self._clock, *hooks, self._began_ns)

    def report(self) -> "Shown":
        """The ranked report of what was seen; what can't be seen by listening is not measured."""
        from perfdoctor.diagnosis.shown import shown

        return shown(self.observation())

    def save(self, file: str | Path) -> None:
        """Save what was seen, for `perfdoctor check FILE`."""
        import msgspec

        from perfdoctor.files import write_whole

        write_whole(Path(file), msgspec.json.encode(self.observation()))

    def close(self) -> None:
        """Listen no longer; may be called again. Nothing of it is left in the process."""
        self._remove()
        for writer in self._writers:
            close = getattr(writer, "close", None)
            if close is not None:
                close()
        self._writers = []
        self._clock.score = None
        if self._diagnosis is not None:
            self._diagnosis.loop_ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *why: object) -> Literal[False]:
        """Where a diagnosis goes on, and the block has ended well, its report is waited for."""
        self.close()
        if self._diagnosis is not None:
            self._diagnosis.__exit__(kind, *why)
        return False

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def _evaluated(self, loader: Any) -> Iterator[Any]:
        """From the first batch to the last one: the loop's own code runs in between."""
        begin_ns = time.perf_counter_ns()
        try:
            yield from loader
        finally:
            self._clock.evaluated(time.perf_counter_ns() - begin_ns)

    def _report(self, number: int, score: Any) -> None:
        """Tell of the iterations since the last line."""
        self._compilations.install()
        value = self._number(score)
        total_ns = self._collections.total_ns
        sums = self._clock.taken(total_ns - self._gc_ns, is_computed=value is not None)
        self._gc_ns = total_ns
        if not sums.iterations:
            return
        collected, compiles = self._collections.taken(), self._compilations.taken()
        (self._compiling if compiles else self._calm).add(sums)
        time_ms = sums.passed_ns / sums.iterations / 1e6
        rate = sums.iterations / max(sums.passed_ns, 1) * 1e9
        line = Line(
            time=time.time(),
            iteration=number,
            iterations=sums.iterations,
            etl_ms=sums.etl_ns / sums.iterations / 1e6,
            iteration_ms=time_ms,
            samples_per_s=rate * sums.samples / sums.sampled if sums.sampled else None,
            batches_per_s=rate,
            score=value,
            collections=collected,
            compiles=compiles,
            evaluation_ms=sums.evaluation_ns / 1e6,
        )
        self._tell(line)
        self._write(line)

    def _number(self, score: Any) -> float | None:
        """A score as a number; waits until it is computed. What can't be read is no score."""
        if score is None:
            return None
        try:
            return float(score)
        except Exception as error:  # the loop goes on, and meets its own errors where it reads it
            self._complain(f"the score can't be read as one number: {error}")
            return None

    def _write(self, line: Line) -> None:
        """To all writers; a full disk is no matter of the loop."""
        for writer in list(self._writers):
            try:
                writer(line)
            except Exception as error:
                self._writers.remove(writer)
                self._complain(f"{type(writer).__name__} writes no longer: {error}")

    def _complain(self, text: str) -> None:
        if not self._complained:
            self._complained = True
            LOGGER.warning("%s", text)


def removed(collections: Collections, compilations: Compilations) -> None:
    """Take back what a listener has put into the process."""
    collections.remove()
    compilations.remove()
