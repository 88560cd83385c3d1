"""What else goes on on the machine while a target runs."""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil

from perfdoctor.kernel import read_text
from perfdoctor.observe.cgroup import throttled_ms
from perfdoctor.process_tree import tree
from perfdoctor.processes import cpu_seconds
from perfdoctor.schema.surroundings import BusyProcess, Load

SHOWN_CORES = 0.02
"""Cores that a process must take to be in the list."""
COMMAND_LENGTH = 100
"""Characters of a command line that are kept."""
FEWEST_SPANS = 3
"""Spans between glances of which the one in the middle says something."""


@dataclass(frozen=True)
class Reading:
    """All counters at one instant, in seconds unless their names say otherwise; only their growth
    means something.
    """

    instant: float
    busy: float
    steal: float
    own: float
    doctor: float
    others: dict[tuple[int, float], float]
    """(pid, start time) to CPU seconds, of processes that are not ours."""
    ran: float
    waited: float
    pressure: float | None
    throttled_ms: float | None
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Name and command line by pid; a thread of the kernel has no command line."""


@dataclass(frozen=True)
class Glance:
    """What is read between two readings, in a millisecond: CPU seconds so far."""

    instant: float
    others: float
    """Of the machine, less the target's processes that are known, and ours."""


def glance(ours: Sequence[psutil.Process]) -> Glance:
    """The counters now. `ours`: the target's processes."""
    busy, _ = used_s()
    known = [*ours, psutil.Process()]
    return Glance(time.monotonic(), busy - sum(cpu_seconds(process) for process in known))


def lasting_cores(glances: Sequence[Glance]) -> float | None:
    """The cores that others take in half of the time at least; None of too few glances.

    What somebody starts that ends at once is in the mean of a short window, and in no training run
    of an hour.
    """
    spans = [
        (after.others - before.others) / (after.instant - before.instant)
        for before, after in pairwise(glances)
        if after.instant > before.instant
    ]
    return max(0.0, median(spans)) if len(spans) >= FEWEST_SPANS else None


def used_s() -> tuple[float, float]:
    """The CPU seconds that the machine's programs have used so far, and those that the hypervisor
    gave to others.
    """
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    steal = getattr(times, "steal", 0.0)
    interrupts = getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    return sum(times) - idle - steal - guest - interrupts, steal


def read(target: psutil.Process) -> Reading:
    """The counters now."""
    ours = {process.pid: process for process in tree(target)}
    busy, steal = used_s()
    others, names = other_processes(set(ours) | {os.getpid()})
    ran, waited = scheduled(list(ours))
    return Reading(
        instant=time.monotonic(),
        busy=busy,
        steal=steal,
        own=sum(cpu_seconds(process) for process in ours.values()),
        doctor=0.0 if os.getpid() in ours else cpu_seconds(psutil.Process()),
        others=others,
        ran=ran,
        waited=waited,
        pressure=pressure_s(read_text(Path("/proc/pressure/cpu"))),
        throttled_ms=throttled_ms(),
        names=names,
    )


def other_processes(
    ours: set[int],
) -> tuple[dict[tuple[int, float], float], dict[int, tuple[str, str]]]:
    """CPU time so far, and name and command line, of the processes that are not ours."""
    seconds, names = {}, {}
    for process in psutil.process_iter(["create_time", "name", "cmdline"]):
        if process.pid in ours:
            continue
        info = process.info
        seconds[process.pid, info["create_time"] or 0.0] = cpu_seconds(process)
        name = info["name"] or "?"
        command = name if info["cmdline"] is None else " ".join(info["cmdline"])
        names[process.pid] = (name, command[:COMMAND_LENGTH])
    return seconds, names


def scheduled(pids: Sequence[int]) -> tuple[float, float]:
    """Seconds that the threads of these processes ran, and that they waited for a core, so far."""
    ran = waited = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError):
                numbers = file.read_text().split()
                ran, waited = ran + int(numbers[0]), waited + int(numbers[1])
    return ran / 1e9, waited / 1e9


def pressure_s(text: str) -> float | None:
    """Seconds in which some task waited for a CPU, of the text of /proc/pressure/cpu."""
    found = re.search(r"^some .*total=(\d+)", text, re.MULTILINE)
    return int(found[1]) / 1e6 if found else None


def between(before: Reading, after: Reading, glances: Sequence[Glance] = ()) -> Load:
    """The load from one reading to the next; `glances`: meanwhile.

    Threads of the kernel (reclaim, writeback) and interrupts are no other program: on a machine of
    its own they work for the training.
    """
    seconds = max(after.instant - before.instant, 1e-9)
    own = max(0.0, after.own - before.own)
    busy = max(0.0, after.busy - before.busy)
    not_others = own + (after.doctor - before.doctor) + of_kernel(before, after)
    ran, waited = after.ran - before.ran, after.waited - before.waited
    return Load(
        seconds=seconds,
        own_cores=own / seconds,
        other_cores=max(0.0, busy - not_others) / seconds,
        steal_cores=max(0.0, after.steal - before.steal) / seconds,
        lasting_cores=lasting_cores(glances),
        others=busiest(before, after, seconds),
        lost_share=waited / (ran + waited) if ran > 0 and waited >= 0 else None,
        pressure_share=difference(before.pressure, after.pressure, seconds),
        throttled_ms=difference(before.throttled_ms, after.throttled_ms, 1.0),
        load_average=os.getloadavg()[0],
        clock_mhz=clock_mhz(),
    )


def clock_mhz() -> float | None:
    """The clock of the fastest core now; None where the kernel does not tell."""
    clocks = [
        int(text)
        for file in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        if (text := read_text(file).strip()).isdigit()
    ]
    return max(clocks) / 1e3 if clocks else None


def difference(before: float | None, after: float | None, per: float) -> float | None:
    """The growth of a counter that not every machine has."""
    return None if before is None or after is None else (after - before) / per


def grown(before: Reading, after: Reading) -> dict[int, float]:
    """The CPU seconds that each process which is not ours took meanwhile, by pid."""
    return {key[0]: total - before.others.get(key, 0.0) for key, total in after.others.items()}


def of_kernel(before: Reading, after: Reading) -> float:
    """The CPU seconds of the kernel's own threads."""
    return sum(taken for pid, taken in grown(before, after).items() if not after.names[pid][1])


def busiest(before: Reading, after: Reading, seconds: float) -> tuple[BusyProcess, ...]:
    """The programs that took most CPU time, ten at most."""
    found = []
    for pid, taken in grown(before, after).items():
        name, command = after.names[pid]
        if command and taken / seconds >= SHOWN_CORES:
            found.append(BusyProcess(pid=pid, name=name, command=command, cores=taken / seconds))
    return tuple(sorted(found, key=lambda process: -process.cores)[:10])
