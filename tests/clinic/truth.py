"""How much faster the healthy scripts are than the ill ones.

python -m tests.clinic.truth [ROUNDS] [NAME …]

Healthy and ill run in turn, in random order, as fresh processes, by nothing but what they print:
no code of perfdoctor is at work. Prints for each ill patient, or for those that are named by their
name or style, the ratio of the two speeds: geometric mean over the rounds, lowest, highest.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import IO

from tests.clinic.patient import Patient, lay_out, patients

SPEED = re.compile(r"(\d[\d,]*(?:\.\d*)?(?:e[+-]?\d+)?) examples/s")
EPOCHS, FEWEST_EPOCHS = 4, 2
"""After the first, which compiles: enough of them, and enough once they took ENOUGH_S."""
ENOUGH_S, LIMIT_S, GRACE_S = 8.0, 90.0, 5.0
WHOLE_RUN = ("--epochs", "3")
ERRORS = "stderr.txt"


def throughput(patient: Patient, folder: Path) -> float:
    """Of a fresh process in its folder: examples per second, or runs per second.

    Raises:
        RuntimeError: it failed, or took too long.
    """
    if patient.measure == "run":
        return 1 / whole_run_s(patient, folder)
    speeds = epochs(patient, folder)[1:]
    if not speeds:
        raise RuntimeError(f"{patient.name}: too few epochs\n{errors(folder)}")
    return median(speeds)


def epochs(patient: Patient, folder: Path) -> list[float]:
    """The speed of each epoch until there are enough, the script ends, or time is up."""
    found: list[float] = []
    until = time.monotonic() + LIMIT_S
    enough = until
    with running(patient, folder) as lines:
        while len(found) <= EPOCHS:
            has_enough = len(found) > FEWEST_EPOCHS
            left_s = (min(enough, until) if has_enough else until) - time.monotonic()
            if left_s <= 0:
                break
            with suppress(queue.Empty):
                line = lines.get(timeout=left_s)
                if line is None:
                    break
                if speed := SPEED.search(line):
                    found.append(float(speed[1].replace(",", "")))
                    if len(found) == 1:
                        enough = time.monotonic() + ENOUGH_S
    return found


def whole_run_s(patient: Patient, folder: Path) -> float:
    """From start to end."""
    start = time.perf_counter()
    with running(replace(patient, args=(*patient.args, *WHOLE_RUN)), folder) as lines:
        while True:
            left_s = start + LIMIT_S - time.perf_counter()
            try:
                if lines.get(timeout=max(0.0, left_s)) is None:
                    return time.perf_counter() - start
            except queue.Empty:
                raise RuntimeError(f"{patient.name}: runs longer than {LIMIT_S:g} s") from None


@contextmanager
def running(patient: Patient, folder: Path) -> Iterator["queue.SimpleQueue[str | None]"]:
    """The script, as the leader of a group that ends with the block; its lines, then None.

    Raises:
        RuntimeError: it ended by itself, and not well.
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with (folder / ERRORS).open("w") as error_file:
        process = subprocess.Popen(
            [sys.executable, *patient.command, *patient.args],
            cwd=folder,
            env={**os.environ, **patient.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error_file,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    reader = threading.Thread(target=read, args=(process, process.stdout, lines))
    reader.start()
    try:
        yield lines
        if process.returncode:
            raise RuntimeError(f"{patient.name}: exit {process.returncode}\n{errors(folder)}")
    finally:
        stop(process, reader)


def read(
    process: "subprocess.Popen[str]", stdout: IO[str], lines: "queue.SimpleQueue[str | None]"
) -> None:
    """Pass on the lines; when there are no more, wait for the end."""
    with stdout:
        for line in stdout:
            lines.put(line)
    process.wait()
    lines.put(None)


def stop(process: "subprocess.Popen[str]", reader: threading.Thread) -> None:
    """End the group: as Ctrl-C would, then for good."""
    if reader.is_alive():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        reader.join(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    reader.join()


def errors(folder: Path) -> str:
    """The end of what the script wrote to stderr."""
    return (folder / ERRORS).read_text()[-2000:]


def ratios(healthy: Patient, ill: Patient, rounds: int, folder: Path) -> list[float]:
    """How many times faster the healthy one is, in each round."""
    args = ill.repaired or healthy.args
    pair = (replace(healthy, measure=ill.measure, args=args), ill)
    folders = [Path(tempfile.mkdtemp(prefix=f"{each.name}-", dir=folder)) for each in pair]
    for each, place in zip(pair, folders, strict=True):
        lay_out(each, place)
        if each.measure == "run":
            throughput(each, place)  # fills what is kept between launches
    found = []
    for _ in range(rounds):
        speeds = {i: throughput(pair[i], folders[i]) for i in random.sample((0, 1), 2)}
        found.append(speeds[0] / speeds[1])
    return found


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
