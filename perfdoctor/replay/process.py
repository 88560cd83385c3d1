"""What a replay process runs."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.capture import ANEW, MANIFEST, Capture, Conditions, Order, Replayed
from perfdoctor.schema.fix import Change, Scalar
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.change import changed_env
from perfdoctor.trials.live import Live, OutOfTime, WorkerEnded

MODULE = "perfdoctor.replay"
OF_THE_PROCESS = ("env", "folders", "settings", "cores")
"""Changes for which another process is started."""


Quiet = Callable[[], AbstractContextManager[None]]


class ReplayProcess(Live):
    """One of them; it waits for orders without taking a core.

    `env`: of the script when it was launched; what its code has set since is in the capture.
    `quiet`: in which steps are timed, once they were compiled.
    """

    def __init__(
        self,
        groups: ProcessGroups,
        env: Mapping[str, str],
        folder: Path,
        capture: Capture,
        change: Change,
        quiet: Quiet = nullcontext,
    ) -> None:
        super().__init__(groups)
        self._quiet = quiet
        self._compiled: set[Conditions] = set()
        self.changes = {name: getattr(change, name) for name in OF_THE_PROCESS}
        own = {name: value for name, value in env.items() if name not in capture.unset}
        env_then = changed_env({**own, **capture.env}, change, self._folder)
        settings = made(capture.settings, change)
        options = [msgspec.json.encode(settings).decode(), ",".join(map(str, change.cores))]
        options += [ANEW] if any(self.changes.values()) else []
        launch = Launch(command=("-m", MODULE, str(folder), *options), env=env_then)
        self._answers = b""
        self._start(launch, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def lives(self) -> bool:
        """Whether it was not yet seen to have ended."""
        return self._child in self._groups

    def run(self, conditions: Conditions, seconds: float, until: float) -> Replayed:
        """Make steps for about so long; raises WorkerEnded if that can't be done.

        `until`: instant of time.monotonic() by which the answer has to come.
        """
        is_compiled = conditions in self._compiled
        self._compiled.add(conditions)
        with self._quiet() if is_compiled else nullcontext():
            return self._run(conditions, seconds, until)

    def _run(self, conditions: Conditions, seconds: float, until: float) -> Replayed:
        if not self.lives:
            raise self._why_ended()
        order = msgspec.json.encode(Order(conditions=conditions, seconds=seconds))
        try:
            os.write(self._child.stdin.fileno(), order + b"\n")
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer(until)
        if answer.failure is not None:
            raise WorkerEnded(answer.failure)
        return answer

    def _answer(self, until: float) -> Replayed:
        stdout = self._child.stdout.fileno()
        while b"\n" not in self._answers:
            left_s = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([stdout], [], [], left_s)
            if not ready:
                raise OutOfTime("the budget ended before its step could be replayed")
            piece = os.read(stdout, 1 << 16)
            if not piece:
                raise self._ended()
            self._answers += piece
        line, _, self._answers = self._answers.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=Replayed)
        except msgspec.DecodeError as error:
            raise WorkerEnded(f"its answer can't be read: {error}") from None

    def _ended(self) -> WorkerEnded:
        self._groups.end(self._child, grace_s=0)
        return self._why_ended()


def made(settings: Mapping[str, Scalar | None], change: Change) -> dict[str, Scalar | None]:
    """JAX's settings as the program had them, but those that a change makes, or leaves to the
    variable that it changes.
    """
    kept = {name: value for name, value in settings.items() if name.upper() not in change.env}
    return {**kept, **change.settings}


def capture_in(folder: Path) -> Capture:
    """What was captured there."""
    return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)
