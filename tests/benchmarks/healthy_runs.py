"""Does a healthy run stay without findings? Ten times alone, ten beside a compiler on a core, and
once in each of several styles.

python -m tests.benchmarks.healthy_runs [RUNS]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.command import SAMPLES, perfdoctor
from tests.saved import save

FUNCTIONS = 3_000
STYLES = {
    "mlp": '[model]\nname = "mlp"\nwidth = 256\n',
    "lstm": '[model]\nname = "lstm"\nwidth = 64\n',
    "transformer": '[model]\nname = "transformer"\nwidth = 64\n',
    "memory, main thread": '[data]\nsource = "memory"\nprefetch = 0\n',
    "records, main thread": "[data]\nprefetch = 0\n",
    "worker process": "[data]\nworkers = 1\n",
    "decoding, prefetched": '[data]\nsource = "images"\nprefetch = 4\nthreads = 2\n',
    "loss read each step": "[training]\nlog_every = 1\n",
    "no donation": "[training]\ndonate = false\n",
    "many live objects": "[process]\nlive_objects = 1_000_000\n",
    "AVX2 only": '[process]\nenv = { XLA_FLAGS = "--xla_cpu_max_isa=AVX2" }\n',
    "batch of 256": "[training]\nbatch_size = 256\n",
}
"""Programs that lack nothing, though some look as if they did."""


@contextmanager
def compiler() -> Iterator[None]:
    """A C compiler that works without end on one core."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "much.c"
        source.write_text(
            "\n".join(
                f"double f{i}(double x) {{ double s = 0; for (int k = 0; k < {i + 9}; k++) "
                f"s += x * k / ({i}.5 + s * s); return s; }}"
                for i in range(FUNCTIONS)
            )
        )
        command = f"while true; do cc -O2 -c {source} -o {folder}/much.o; done"
        child = subprocess.Popen(["sh", "-c", command], start_new_session=True)
        time.sleep(1)
        try:
            yield
        finally:
            os.killpg(child.pid, 9)
            child.wait()


def styles() -> list[dict[str, Any]]:
    """A check of each style."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in STYLES.items():
            file = Path(folder) / "style.toml"
            file.write_text(text)
            found += [{"style": name, **seen} for seen in runs(1, file)]
    return found


def runs(count: int, workload: Path = SAMPLES / "healthy.toml") -> list[dict[str, Any]]:
    """The findings, and hints, of so many checks."""
    found = []
    for _ in range(count):
        start = time.monotonic()
        answer = perfdoctor("check", str(workload), "--format", "json")
        report = json.loads(answer.stdout)
        found.append(
            {
                "findings": [each["check"] for each in report["findings"]],
                "hints": [c["id"] for c in report["checks"] if c["outcome"] == "hint"],
                "wall_s": round(time.monotonic() - start, 1),
                "step_ms": round(report["steps"]["time_ms"], 2),
            }
        )
        print(found[-1], file=sys.stderr)
    return found


def summary(name: str, found: list[dict[str, Any]]) -> str:
    """One line for a series of runs."""
    false = [f for each in found for f in each["findings"] if f != "competing-processes"]
    busy = sum("competing-processes" in each["findings"] for each in found)
    longest = max(each["wall_s"] for each in found)
    return (
        f"{name:<24}  {len(found):4d}  {len(false):12d}  {busy:19d}  {longest:9.0f} s"
        f"   {' '.join(false)}"
    )


def main() -> None:
    """Both series."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    alone = runs(count)
    with compiler():
        beside = runs(count)
    various = styles()
    lines = [
        "healthy.toml              runs  false alarms  competing-processes  longest run",
        summary("alone", alone),
        summary("a compiler on one core", beside),
        summary("healthy styles, alone", various),
        *(f"  {each['style']}: {each['findings'] or 'nothing'}" for each in various),
    ]
    save("healthy_runs", lines, {"alone": alone, "beside": beside, "styles": various})


if __name__ == "__main__":
    main()
