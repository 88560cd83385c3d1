"""The limits that a container or a batch system sets by control groups, version 1 or 2."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
"""Where Linux has its control groups."""
UNLIMITED = 2**60
"""Version 1 writes a number near 2**63 for no limit."""


def groups(controller: str, root: Path = ROOT, own: str | None = None) -> Iterator[Path]:
    """The folders of our control group and those above it, innermost first.

    `own`: the text of /proc/self/cgroup.
    """
    if own is None:
        try:
            own = Path("/proc/self/cgroup").read_text()
        except OSError:
            return
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            top = root if controllers == "" else root / controller
            folder = top / path.lstrip("/")
            while folder.is_relative_to(top):
                if folder.is_dir():
                    yield folder
                if folder == top:
                    break
                folder = folder.parent


def numbers(file: Path) -> list[int | None]:
    """The numbers in a file of one line; None for `max` and the like."""
    try:
        words = file.read_text().split()
    except OSError:
        return []
    return [int(word) if word.lstrip("-").isdigit() else None for word in words]


def quota_cores(root: Path = ROOT, own: str | None = None) -> float | None:
    """CPU time per wall time that the tightest group allows; None if it is not limited."""
    found = []
    for folder in groups("cpu", root, own):
        match numbers(folder / "cpu.max"):
            case [int(quota), int(period)]:
                found.append(quota / period)
        match (numbers(folder / "cpu.cfs_quota_us"), numbers(folder / "cpu.cfs_period_us")):
            case ([int(quota)], [int(period)]) if quota > 0:
                found.append(quota / period)
    return min(found, default=None)


def memory_limit_bytes(root: Path = ROOT, own: str | None = None) -> int | None:
    """The tightest limit; None if memory is not limited."""
    limits = [
        limit[0]
        for folder in groups("memory", root, own)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := numbers(folder / name)) and limit[0] is not None and limit[0] < UNLIMITED
    ]
    return min(limits, default=None)


def memory_used_bytes(root: Path = ROOT, own: str | None = None) -> int | None:
    """What our group uses of its limit."""
    for folder in groups("memory", root, own):
        for name in ("memory.current", "memory.usage_in_bytes"):
            match numbers(folder / name):
                case [int(used)]:
                    return used
    return None


def throttled_ms(root: Path = ROOT, own: str | None = None) -> float | None:
    """Time for which a quota has held our group back so far; None if that is not counted.

    The quota may be that of a group above; the one that was held back longest counts.
    """
    found = []
    for folder in groups("cpu", root, own):
        try:
            lines = (folder / "cpu.stat").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "throttled_usec":
                found.append(int(value) / 1e3)
            if name == "throttled_time":
                found.append(int(value) / 1e6)
    return max(found, default=None)
