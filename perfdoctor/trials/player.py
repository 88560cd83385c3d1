"""A live training process that runs only when it is told to."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from perfdoctor.processes import Ward, out_of_memory, resume, suspend
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.slices import Slice

KILLED = -9


class PlayerEnded(Exception):
    """The process ended, or did not answer, when it was to run; the message says why."""


class Player:
    """One live process of a pair; suspended whenever it has nothing to do."""

    def __init__(self, ward: Ward, launch: Launch) -> None:
        self._ward = ward
        self._folder = ward.folder()
        self._answers = b""
        with self._log.open("wb") as log:
            self._child = ward.spawn(
                [sys.executable, *launch.command],
                env=launch.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._child in self._ward:
            self._ward.end(self._child)
        self._ward.discard(self._folder)

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def ask(self, steps: int) -> None:
        """Let it run so many steps; `answer` waits for their end."""
        resume(self._child)
        try:
            os.write(self._child.stdin.fileno(), f"{steps}\n".encode())
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self, within_s: float) -> Slice:
        """What the steps took; the process is suspended again."""
        until = time.monotonic() + within_s
        stdout = self._child.stdout.fileno()
        while b"\n" not in self._answers:
            ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise PlayerEnded(f"no answer within {within_s:.0f} s")
            piece = os.read(stdout, 4096)
            if not piece:
                raise self._ended()
            self._answers += piece
        suspend(self._child)
        line, _, self._answers = self._answers.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=Slice)
        except msgspec.DecodeError as error:
            raise PlayerEnded(f"its answer can't be read: {error}") from None

    def run(self, steps: int, within_s: float) -> Slice:
        """Run so many steps now."""
        self.ask(steps)
        return self.answer(within_s)

    def _ended(self) -> PlayerEnded:
        self._ward.end(self._child, grace_s=0)
        code = self._child.returncode
        lines = self._log.read_text(errors="replace").strip().splitlines()
        if exhausted := out_of_memory(lines):
            return PlayerEnded(f"out of memory: {exhausted}")
        if code == KILLED:
            return PlayerEnded("killed, as the kernel does when memory runs out")
        return PlayerEnded(lines[-1] if lines else f"ended with status {code}")
