"""The observer, in a process whose loop runs already and is not to be stopped."""

import threading
import time
from pathlib import Path
from typing import Any

import psutil

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.injection.reach import Reach
from perfdoctor.observe.agent.calls import is_tracing
from perfdoctor.observe.agent.silence import silent
from perfdoctor.observe.agent.watch import Watcher
from perfdoctor.observe.digest.executable import module_name

OWN_FILES.add(__file__)
WRITING_S = 3.0
"""How long it is waited for the calls whose programs are to be written."""
POLL_S = 0.01


class Recorder(Watcher):
    """Records some steps; hears of functions that were jitted long before, and can be removed."""

    def attach(self, jax: Any) -> None:
        """Begin to record.

        Raises:
            Unreachable: jax is not as we know it.
        """
        self.hearing = Reach(jax)  # before anything is changed: it may not be possible
        self._dumped_to = jax.config.values.get("jax_dump_ir_to")
        self.listen(jax, self.hearing)
        self.compilation.last_ns = time.time_ns()  # as far as we know it is at rest
        self.listeners.garbage.install()
        self.start()

    def begin(self) -> None:
        """At a compilation nothing begins: it has begun."""

    def end(self) -> None:
        """The loop has ended, or enough was seen: what was recorded is written."""
        self._ended.set()
        if self.is_alive():
            self.join()

    def detach(self) -> None:
        """Leave nothing of ours in the process."""
        self.hearing.forget()
        self.profiler.remove()
        self.listeners.detach()
        if self.compilation.dumps_for_us:
            self.jax.config.update("jax_dump_ir_to", self._dumped_to)

    def _stop_the_program(self) -> None:
        """It is not ours to stop."""

    def _trace_window(self, number: int, window_s: float) -> None:
        if number == 1:
            self._write_programs()
        super()._trace_window(number, window_s)

    def _write_programs(self) -> None:
        """Write the programs of the step's calls, which jax compiled before it was asked."""
        calls = self.step.calls.calls if self.step.calls else ()
        names = {call.function for call in calls}
        writer = ProgramWriter(names, Path(self.recording.programs))
        with self.compilation.deaf(self.jax):
            self.hearing.hear = writer
            until = time.monotonic() + WRITING_S
            while writer.missing and time.monotonic() < until and not self._ended.wait(POLL_S):
                pass
            self.hearing.hear = None


class ProgramWriter:
    """Makes the program's calls, and writes what each function was lowered to: StableHLO."""

    def __init__(self, names: set[str], folder: Path) -> None:
        self.missing = set(names)
        self._folder = folder
        self._lock = threading.Lock()

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; what goes wrong with us is no matter of the program."""
        if function.name in self.missing and not is_tracing():
            with self._lock:
                self._write(function, args, kwargs)
        return function.jitted(*args, **kwargs)

    def _write(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if function.name not in self.missing:
            return
        self.missing.discard(function.name)
        try:
            with silent():
                text = function.jitted.lower(*args, **kwargs).as_text(debug_info=True)
            name = f"jax_ir0000_{module_name(function.name)}_compile.mlir"
            (self._folder / name).write_text(text)
        except Exception:  # the report says then that the program could not be read
            return


class ThisProcess(psutil.Process):  # type: ignore[misc]
    """This process, followed as if it were a child whose loop is the whole of it."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def poll(self) -> int | None:
        """0 once the loop has ended."""
        return None if self._recorder.is_alive() else 0

    def wait(self, timeout: float | None = None) -> int | None:
        """It does not end for our sake."""
        return self.poll()

    def send_signal(self, sig: int) -> None:
        """None."""
