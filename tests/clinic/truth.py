"""How much faster the healthy scripts are than the ill ones.

python -m tests.clinic.truth [ROUNDS] [NAME …]

In each round healthy and ill start as fresh processes, and then go on in turns of about a second,
each stopped while the other one runs, so that the machine's drift touches both alike. Their speeds
are those that they print; no code of perfdoctor is at work. Prints for each ill patient, or for
those that are named by their name or style, the ratio of the two speeds: geometric mean over the
rounds, lowest, highest.
"""

import math
import os
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean, harmonic_mean
from typing import IO, Self

from tests.clinic.patient import Patient, lay_out, patients

SPEED = re.compile(r"(\d[\d,]*(?:\.\d*)?(?:e[+-]?\d+)?) examples/s")
TURN_S, TURNS = 1.0, 5
"""So long at least a script's turn takes, in whole epochs; so many turns each has in a round."""
ROUND_S, LIMIT_S, GRACE_S = 30.0, 90.0, 5.0
"""No turn begins after so long in a round; the longest a script may print nothing; or take to end.
"""
WHOLE_RUN = ("--epochs", "3")
ERRORS = "stderr.txt"


class Script:
    """A live one: the leader of a group that ends with the block.

    Raises:
        RuntimeError: it ended by itself, and not well; or it printed nothing for too long.
    """

    def __init__(self, patient: Patient, folder: Path) -> None:
        self._name, self._errors = patient.name, folder / ERRORS
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with self._errors.open("w") as error_file:
            self._process = subprocess.Popen(
                [sys.executable, *patient.command, *patient.args],
                cwd=folder,
                env={**os.environ, **patient.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=error_file,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        """End the group: as Ctrl-C would, then for good."""
        self._signal(signal.SIGCONT)
        if self._reader.is_alive():
            self._signal(signal.SIGINT)
            self._reader.join(GRACE_S)
        self._signal(signal.SIGKILL)
        self._reader.join()

    def start(self) -> None:
        """Run through the first epoch, which compiles, and stop."""
        self._epoch()
        self._signal(signal.SIGSTOP)

    def turn(self) -> float | None:
        """Examples per second over some epochs, and stop; None if the script ended before."""
        self._signal(signal.SIGCONT)
        begin = None
        speeds = []
        while begin is None or time.monotonic() - begin < TURN_S:
            speed = self._epoch()
            if speed is None:
                return None
            if begin is None:  # by the script's clock that epoch took as long as it was stopped too
                begin = time.monotonic()
            else:
                speeds.append(speed)
        self._signal(signal.SIGSTOP)
        return harmonic_mean(speeds)  # each epoch has as many examples

    def run(self) -> None:
        """To its end."""
        while self._line() is not None:
            pass

    def _epoch(self) -> float | None:
        """The speed of the next epoch; None if there is none."""
        while (line := self._line()) is not None:
            if speed := SPEED.search(line):
                return float(speed[1].replace(",", ""))
        return None

    def _line(self) -> str | None:
        """The next one; None at the end."""
        try:
            line = self._lines.get(timeout=LIMIT_S)
        except queue.Empty:
            raise RuntimeError(f"{self._name}: nothing in {LIMIT_S:g} s") from None
        if line is None and self._process.returncode:
            errors = self._errors.read_text()[-2000:]
            raise RuntimeError(f"{self._name}: exit {self._process.returncode}\n{errors}")
        return line

    def _read(self, stdout: IO[str]) -> None:
        """Pass on the lines; when there are no more, wait for the end."""
        with stdout:
            for line in stdout:
                self._lines.put(line)
        self._process.wait()
        self._lines.put(None)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def ratios(healthy: Patient, ill: Patient, rounds: int, folder: Path) -> list[float]:
    """How many times faster the healthy one is, in each round."""
    healthy = replace(healthy, args=ill.repaired or healthy.args)
    folders = [
        Path(tempfile.mkdtemp(prefix=f"{each.name}-", dir=folder)) for each in (healthy, ill)
    ]
    for each, place in zip((healthy, ill), folders, strict=True):
        lay_out(each, place)
    if ill.measure != "run":
        return [ratio_of_speeds(healthy, ill, *folders) for _ in range(rounds)]
    pairs = list(zip((healthy, ill), folders, strict=True))
    for pair in pairs:
        whole_run_s(*pair)  # fills what is kept between runs
    found = []
    for _ in range(rounds):
        seconds = {pair[0].name: whole_run_s(*pair) for pair in random.sample(pairs, 2)}
        found.append(seconds[ill.name] / seconds[healthy.name])
    return found


def ratio_of_speeds(healthy: Patient, ill: Patient, healthy_in: Path, ill_in: Path) -> float:
    """By what they print, in turns.

    Raises:
        RuntimeError: one of them failed, or had no turn.
    """
    logs: list[float] = []
    with Script(healthy, healthy_in) as one, Script(ill, ill_in) as other:
        for script in (one, other):
            script.start()
        until = time.monotonic() + ROUND_S
        while len(logs) < TURNS and (not logs or time.monotonic() < until):
            speeds = {script: script.turn() for script in random.sample((one, other), 2)}
            fast, slow = speeds[one], speeds[other]
            if fast is None or slow is None:
                break
            logs.append(math.log(fast / slow))
    if not logs:
        raise RuntimeError(f"{ill.name}: too few epochs")
    return math.exp(fmean(logs))


def whole_run_s(patient: Patient, folder: Path) -> float:
    """From start to end."""
    start = time.perf_counter()
    with Script(replace(patient, args=(*patient.args, *WHOLE_RUN)), folder) as script:
        script.run()
        return time.perf_counter() - start


def told(healthy: Patient, ill: Patient, rounds: int) -> str:
    """The ratio and its range, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = ratios(healthy, ill, rounds, Path(folder))
        except RuntimeError as error:
            return str(error)
    mean = math.exp(fmean(map(math.log, found)))
    return f"{mean:5.2f}x ({min(found):.2f}-{max(found):.2f})"


def main() -> None:
    """All ill patients, or those that are named."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    names, everyone = sys.argv[2:], patients()
    healthy = {each.style: each for each in everyone if each.cause is None}
    for ill in everyone:
        if ill.cause is None or (names and not {ill.name, ill.style} & set(names)):
            continue
        print(f"{ill.name:<35} {ill.cause:<15} {told(healthy[ill.style], ill, rounds)}", flush=True)


if __name__ == "__main__":
    main()
