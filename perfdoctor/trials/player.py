"""A live training process that runs only when it is told to."""

import os
import select
import subprocess
import time

import msgspec

from perfdoctor.processes import Ward, resume, suspend
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.slices import Slice
from perfdoctor.trials.live import Live, PlayerEnded


class Player(Live):
    """A process of a pair that obeys; suspended whenever it has nothing to do."""

    def __init__(self, ward: Ward, launch: Launch) -> None:
        super().__init__(ward)
        self._answers = b""
        self._start(launch, launch.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

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
        return self._why_ended()
