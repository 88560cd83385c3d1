"""Runs `perfdoctor check` and `bench`, as a user would, on a GPU, and prints the reports.

`python -m tests.clinic.gpu [--keep FOLDER] [FAULT…]`; `reference` is the reference loop, `bench` is
it measured, saved, and compared with what was saved, first itself and then the sample `host_sync`;
any other name is a sample's. Each takes up to two minutes. `--keep`: the observations are saved
there.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENT = Path(__file__).parent / "patients" / "gpu_transformer.py"
FAULTS = ("none", "sync", "etl", "x64", "upload", "varlen", "small")
REFERENCE, BENCH = "reference", "bench"
LIMIT_S = 180.0
"""The budget of a command, and time for its start and its end."""
BENCH_S = "120"
"""Seconds for each of the three measurements of `bench`: in 60 no two pairs were measured."""
SLOWER = "host_sync"
"""The sample that `bench` must call slower than the reference loop."""


def told(*arguments: str) -> str:
    """What perfdoctor prints, or why it printed nothing, and how long it took."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "perfdoctor", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    told = answer.stdout if answer.stdout.strip() else answer.stderr[-4000:]
    return f"{told}(exit {answer.returncode} after {time.monotonic() - begin:.0f} s)\n"


def examined(fault: str, keep: Path | None) -> str:
    """The report of `check`."""
    if fault in FAULTS:
        target = [str(PATIENT), "--", "--fault", fault]
    else:
        target = [] if fault == REFERENCE else ["--sample", fault]
    kept = [] if keep is None else ["--save-observation", str(keep / f"{fault}.json")]
    return told("check", *kept, *target)


def compared() -> str:
    """The reference loop's numbers, their comparison with themselves, and a slower loop's."""
    with tempfile.TemporaryDirectory() as folder:
        saved = str(Path(folder) / "numbers.json")
        first = told("bench", "--budget", BENCH_S, "--save", saved)
        same = told("bench", "--budget", BENCH_S, "--against", saved)
        slower = told("bench", "--budget", BENCH_S, "--sample", SLOWER, "--against", saved)
        return first + same + slower


def main() -> None:
    """Those that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("faults", nargs="*", default=[REFERENCE, *FAULTS, BENCH])
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    for fault in options.faults:
        answer = compared() if fault == BENCH else examined(fault, options.keep)
        print(f"== {fault}\n\n{answer}", flush=True)


if __name__ == "__main__":
    main()
