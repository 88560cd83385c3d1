"""What a page of very many findings and steps takes: time, memory, size.

python -m tests.benchmarks.report_size
"""

import resource
import subprocess
import sys
import time

from perfdoctor.report.html import report as html
from perfdoctor.report.html.page import LARGEST_BYTES
from tests.report.html.pages import large
from tests.saved import save

SIZES = ((1, 20), (1000, 20), (1, 1_000_000), (1000, 1_000_000))
"""Findings and steps of the timeline."""
LONGEST_S, MOST_MIB = 5.0, 500
MIB = 2**20


def main() -> None:
    """Each size in a process of its own, so that each has its own peak."""
    found = []
    for findings, steps in SIZES:
        command = [sys.executable, "-m", "tests.benchmarks.report_size", str(findings), str(steps)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, before_mib, peak_mib, size = map(float, answer.stdout.split())
        found.append(
            {
                "findings": findings,
                "steps": steps,
                "seconds": seconds,
                "report_mib": before_mib,
                "peak_mib": peak_mib,
                "bytes": size,
            }
        )
    lines = [
        f"A page is to take less than {LONGEST_S:g} s, {MOST_MIB} MiB and {LARGEST_BYTES:,} bytes.",
        "The peak is that of the whole process, the report itself included.",
        "",
        "findings      steps  render   report   peak     page",
        *(
            f"{each['findings']:8,}  {each['steps']:9,}  {each['seconds']:4.1f} s  "
            f"{each['report_mib']:4.0f} MiB  {each['peak_mib']:4.0f} MiB  "
            f"{each['bytes'] / 1e6:.2f} MB"
            for each in found
        ),
    ]
    save("report_size", lines, found)


def one(findings: int, steps: int) -> None:
    """Prints seconds, the peak before, the peak after, and the size of the page."""
    report = large(findings, steps)
    before_mib = peak_mib()
    start = time.perf_counter()
    page = html.render(report)
    seconds = time.perf_counter() - start
    print(seconds, before_mib, peak_mib(), len(page.encode()))


def peak_mib() -> float:
    """The most memory that this process held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
