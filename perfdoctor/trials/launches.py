"""Whole runs in turn, each a fresh process: for fixes that make the start of a run faster."""

import math
import random
import sys
import time

import psutil

from perfdoctor.processes import ProcessGroups, out_of_memory
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import WorkerEnded

ROUNDS = 3
"""Runs of each: the fewest from which their scatter can be told."""


def play_launches(
    groups: ProcessGroups, unchanged: Launch, changed: Launch, until: float
) -> list[float]:
    """Log ratios of the time that a run takes from start to end, unchanged over changed.

    The changed program runs once before, to fill what it may keep for later runs. `until`: instant
    of time.monotonic() at which the last run must have ended. Raises WorkerEnded.
    """
    needed_s = (1 + 2 * ROUNDS) * run_s(groups, changed, until)
    if time.monotonic() + needed_s > until:
        raise WorkerEnded(f"its gain takes {needed_s:.0f} s to measure; give a longer --budget")
    ratios: list[float] = []
    for _ in range(ROUNDS):
        order = [unchanged, changed]
        random.shuffle(order)
        took = {id(launch): run_s(groups, launch, until) for launch in order}
        ratios.append(math.log(took[id(unchanged)] / took[id(changed)]))
    return ratios


def run_s(groups: ProcessGroups, launch: Launch, until: float) -> float:
    """Seconds that one run takes."""
    folder = groups.folder()
    start = time.monotonic()
    with (folder / "log").open("wb") as log:
        child = groups.spawn(
            [sys.executable, *launch.command],
            env=launch.env,
            cwd=launch.folder,
            stdout=log,
            stderr=log,
        )
    try:
        code = child.wait(max(0.1, until - start))
        seconds = time.monotonic() - start
    except psutil.TimeoutExpired:
        raise WorkerEnded("the budget ended before its gain could be measured") from None
    finally:
        groups.end(child, grace_s=0.5)
        lines = (folder / "log").read_text(errors="replace").strip().splitlines()
        groups.discard(folder)
    if code != 0:
        raise WorkerEnded(out_of_memory(lines) or (lines or [f"ended with status {code}"])[-1])
    return seconds
