"""What XProf says of the clinic's scripts, beside what is wrong with them.

python -m tests.clinic.xprof_findings [NAME …]

Each patient trains for a while and is then profiled as XProf's guide has it (jax.profiler, JAX's
defaults, some seconds). What XProf's pages conclude in words is read from the data behind them: the
overview, the input pipeline's analysis, the suggestions. A conclusion counts if the healthy script
of the same style does not get it too. A patient's cause counts as named if a conclusion that counts
holds a word that could mean it (WORDS), which is generous.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfdoctor.injection import injected
from tests.clinic.patient import Patient, lay_out, patients
from tests.clinic.traced import DONE
from tests.saved import save

AFTER_S, WINDOW_S, LIMIT_S = 12.0, 3.0, 120.0
TOOLS = ("overview_page", "input_pipeline_analyzer", "smart_suggestion")
FEWEST_WORDS = 4
"""In a text that is taken for a conclusion, not for a name or a number."""
MARKUP, NUMBER = re.compile(r"<[^>]*>"), re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
WORDS = {
    "etl": r"input.bound|input pipeline|input op|data load|preprocess",
    "host-sync": r"host (?:sync|wait|time)|synchroni|device to host|blocking",
    "missing-jit": r"jit|op-by-op|eager|kernel launch|dispatch",
    "recompilation": r"compil|retrac",
    "batch-size": r"batch",
    "dtype": r"float64|double|64-bit|precision|16-bit",
    "transfers": r"transfer|host to device|device_put",
    "gc": r"garbage",
    "debug-flags": r"debug|nan|jit",
    "cpu-only-ops": r"callback|outside compil|host op",
    "workspaces": r"donat|copy|allocat",
    "memory": r"memory",
    "network": r"kernel size|convolution|shape",
    "compile-cache": r"compil|cache",
    "omp-threads": r"thread",
    "shared-model": r"thread|batch",
    "avx": r"avx|vector",
    "idle-devices": r"idle",
}


@dataclass(frozen=True)
class Row:
    """One patient, and what XProf concludes."""

    name: str
    cause: str | None
    conclusions: tuple[str, ...]
    failure: str | None = None


def conclusions(patient: Patient) -> Row:
    """Profile it, and read XProf's pages."""
    with tempfile.TemporaryDirectory() as scratch:
        work, traces = Path(scratch) / "work", Path(scratch) / "traces"
        traces.mkdir()
        lay_out(patient, work)
        failure = profile(patient, work, traces)
        spaces = sorted(map(str, traces.rglob("*.xplane.pb")))
        if failure or not spaces:
            return Row(patient.name, patient.cause, (), failure or "no trace")
        found = {text for tool in TOOLS for text in texts(page(spaces, tool))}
        return Row(patient.name, patient.cause, tuple(sorted(found)))


def profile(patient: Patient, work: Path, traces: Path) -> str | None:
    """Why there is no trace; None if there is."""
    orders = {"folder": str(traces), "after_s": AFTER_S, "window_s": WINDOW_S}
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *patient.command, *patient.args],
            cwd=work,
            env=injected({**os.environ, **patient.env}, "tests.clinic.traced", **orders),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until and not (traces / DONE).exists():
        time.sleep(0.1)
    ended = process.poll() is not None
    process.kill()
    process.wait()
    if (traces / DONE).exists():
        return None
    return "it ended first" if ended else f"no trace within {LIMIT_S:.0f} s"


def page(spaces: list[str], tool: str) -> Any:
    """The data behind a page of XProf; what it raised if it can't be made."""
    from xprof.convert import raw_to_tool_data

    try:
        data, _ = raw_to_tool_data.xspace_to_tool_data(spaces, tool, {})
        return json.loads(data) if data else None
    except Exception as error:  # whatever it can't digest
        return [f"the page {tool} can't be made: {type(error).__name__}: {error}"]


def texts(data: Any) -> Iterator[str]:
    """The sentences in it; numbers stand as …, so that those of two runs can be compared."""
    if isinstance(data, dict):
        for value in data.values():
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)
    elif isinstance(data, str):
        plain = " ".join(NUMBER.sub("…", MARKUP.sub(" ", data)).split())
        if len(plain.split()) >= FEWEST_WORDS:
            yield plain


def named(row: Row, healthy: Row) -> list[str]:
    """The conclusions that could mean the cause."""
    own = [text for text in row.conclusions if text not in healthy.conclusions]
    return [text for text in own if row.cause and re.search(WORDS[row.cause], text, re.IGNORECASE)]


def line(row: Row, healthy: Row) -> str:
    """A row of the printed table."""
    own = [text for text in row.conclusions if text not in healthy.conclusions]
    said = row.failure or " | ".join(own) or "-"
    mark = "named" if named(row, healthy) else ""
    return f"{row.name:<36} {row.cause or 'healthy':<15} {mark:<6} {said}"


def main() -> None:
    """All, or those that are named by their name or style."""
    names = set(sys.argv[1:])
    everyone = [p for p in patients() if not names or {p.name, p.style} & names]
    rows: list[Row] = []
    for patient in everyone:
        rows.append(conclusions(patient))
        print(rows[-1], flush=True)
        healthy = {row.name: row for row in rows if row.cause is None}
        well = [healthy[patient.style] for patient in everyone[: len(rows)]]
        lines = [line(row, of_style) for row, of_style in zip(rows, well, strict=True)]
        ill = [pair for pair in zip(rows, well, strict=True) if pair[0].cause is not None]
        common = sorted({text for row in rows if row.cause is None for text in row.conclusions})
        lines += ["", f"{len(ill)} ill: the cause is named in {sum(bool(named(*p)) for p in ill)}"]
        lines += ["", "said of healthy scripts:", *(f"  {text}" for text in common)]
        save("xprof_findings", lines, [asdict(row) for row in rows], shown=False)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
