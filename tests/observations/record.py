"""Records the healthy sample on machines of other shapes, and a script, for the tests.

python -m tests.observations.record [SHAPE …]

The memory limit needs root and control groups of version 1; nothing else should run meanwhile. The
observations of the samples, of a quota and of a competitor are made by tests.clinic.catalogue.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.command import SAMPLES
from tests.recorded import saved

SHAPES = ("healthy", "one_core", "little_memory", "two_devices", "several_causes")
MEMORY_GROUP = Path("/sys/fs/cgroup/memory/perfdoctor-record")
MEMORY_LIMIT_BYTES = 1200 * 2**20
TWO_DEVICES = """
[model]
name = "cnn"
[training]
devices = 2
[process]
env = { XLA_FLAGS = "--xla_force_host_platform_device_count=2" }
"""
IN_GROUP = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"']


@contextmanager
def little_memory() -> Iterator[list[str]]:
    """A control group with little memory; yields what a command must begin with to be in it."""
    MEMORY_GROUP.mkdir()
    try:
        (MEMORY_GROUP / "memory.limit_in_bytes").write_text(str(MEMORY_LIMIT_BYTES))
        yield [*IN_GROUP, str(MEMORY_GROUP)]
    finally:
        MEMORY_GROUP.rmdir()


def record(name: str, prefix: list[str], target: Path, *options: str) -> None:
    """One observation."""
    command = [sys.executable, "-m", "perfdoctor", "check", str(target)]
    command += ["--save-observation", str(saved(name)), *options]
    print(name, flush=True)
    answer = subprocess.run([*prefix, *command], capture_output=True, text=True)
    print(answer.stdout, answer.stderr, flush=True)


def shape(name: str) -> None:
    """The healthy sample on a machine of another shape, or the script."""
    healthy = SAMPLES / "healthy.toml"
    if name == "one_core":
        record(name, ["taskset", "-c", "0"], healthy, "--no-try-fixes")
    elif name == "little_memory":
        with little_memory() as prefix:
            record(name, prefix, healthy, "--no-try-fixes")
    elif name == "healthy":
        record(name, [], healthy)
    elif name == "several_causes":
        record(name, [], Path(__file__).parent / f"{name}.py", "--try-fixes")
    elif name == "two_devices":
        with tempfile.TemporaryDirectory() as folder:
            workload = Path(folder) / "two_devices.toml"
            workload.write_text(TWO_DEVICES)
            record(name, [], workload, "--no-try-fixes")
    else:
        raise SystemExit(f"no shape {name!r}; expected {', '.join(SHAPES)}")


def main() -> None:
    """All of them, or those that are named."""
    for name in sys.argv[1:] or SHAPES:
        shape(name)


if __name__ == "__main__":
    main()
