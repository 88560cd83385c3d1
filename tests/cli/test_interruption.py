"""Ctrl-C and SIGTERM at any moment leave no process, no suspended process, no temporary folder."""

import os
import random
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

MOMENTS = 20
ENDED_BEFORE = 0
"""Stands for a command that was done before its moment came."""
LATEST_S = 24.0
"""By then a trial plays: one process of the pair is suspended."""
WORKLOAD = """
[data]
source = "images"
image_size = 64
examples = 200
prefetch = 1
workers = 1
folder = "{folder}"
[training]
batch_size = 4
[process]
gc_collect_every = 3
live_objects = 300_000
"""


def relatives(mark: str) -> list[psutil.Process]:
    """The processes that carry this mark in their environment, zombies left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PERFDOCTOR_TEST") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def shared_memory() -> set[str]:
    """Names of the shared memory and the semaphores of Python's multiprocessing."""
    return {
        file.name
        for file in Path("/dev/shm").glob("*")
        if "psm_" in file.name or "mp-" in file.name
    }


def interrupt(seed: int, folder: Path) -> tuple[list[str], list[str], int]:
    """What one interrupted command left: processes, files; and its exit code."""
    chance = random.Random(seed)
    mark = uuid.uuid4().hex
    temporary = folder / f"tmp-{seed}"
    data = folder / f"data-{seed}"
    temporary.mkdir()
    workload = folder / f"{seed}.toml"
    workload.write_text(WORKLOAD.format(folder=data))
    child = subprocess.Popen(
        [sys.executable, "-m", "perfdoctor", "check", str(workload)],
        env={**os.environ, "PERFDOCTOR_TEST": mark, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with suppress(subprocess.TimeoutExpired):
        child.wait(chance.uniform(0.3, LATEST_S))
        return [], [], ENDED_BEFORE
    child.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
    code = child.wait(60)
    left = [f"{p.pid} {p.status()} {' '.join(p.cmdline())}" for p in relatives(mark)]
    files = [str(file) for file in temporary.iterdir()]
    files += [str(file) for file in data.glob(".*")] if data.exists() else []
    return left, files, code


@pytest.mark.skipif(sys.platform != "linux", reason="reads other processes' environments")
def test_interrupted_at_twenty_random_moments(tmp_path: Path) -> None:
    before = shared_memory()
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda seed: interrupt(seed, tmp_path), range(MOMENTS)))
    assert [end for end in ends if end[0] or end[1]] == []
    assert shared_memory() <= before
    # before Python has set up its own handlers the signal itself ends the process
    early = (-signal.SIGTERM, -signal.SIGINT, 130)
    assert {code for _, _, code in ends} <= {3, ENDED_BEFORE, *early}
    assert sum(code == 3 for _, _, code in ends) >= MOMENTS / 2
