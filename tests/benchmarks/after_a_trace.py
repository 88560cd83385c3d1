"""How long a script's steps take after it was traced, by what they take in a run that never was.

python -m tests.benchmarks.after_a_trace

Two runs of a healthy script of tests/clinic/fresh take turns, each suspended while the other runs.
Both count their calls; only one is observed, as `perfdoctor check` does it, up to where a window
was traced and written: it is then that its steps are timed in turn with their replay.
"""

import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from perfdoctor.counters import EVERY, STEPS
from perfdoctor.injection import injected
from perfdoctor.observe.following import WINDOW_S
from perfdoctor.process_tree import resume, suspend
from perfdoctor.processes import ProcessGroups
from perfdoctor.protocol import RECORDED
from perfdoctor.trials.shared_counters import SharedCounters
from tests.benchmarks.counted import NO_CHANGE
from tests.benchmarks.script_overhead import wait_for
from tests.clinic.fresh import FOLDER, cases, named, written
from tests.saved import save

SCRIPTS = (
    ("sixth", "factor_sghmc"),
    ("fourth", "credit_sgld"),
    ("seventh", "greenhouse_ident"),
    ("seventh", "restock_sf"),
    ("fifth", "tabgauss_flow"),
    ("first", "keyword_trainer"),
)
TURNS, TURN_S, SETTLED_S, BEGUN_S = 15, 0.6, 0.15, 8.0
"""Turns of each, the seconds of one, and of these, what passes before calls are counted; and after
which a run that nobody observes has begun."""
STEADY_WITHIN_S = 60.0


@dataclass(frozen=True)
class Slowed:
    """Of each turn of one script: its observed run's time of a call over the other one's."""

    step_ms: float
    after: tuple[float, ...]


class Counted:
    """A run of a script that counts its calls; suspended but for its turns."""

    def __init__(self, script: Path, module: str, groups: ProcessGroups) -> None:
        self.notes = groups.folder()
        self._every, _ = SharedCounters(self.notes / EVERY), SharedCounters(self.notes / STEPS)
        env = injected(
            os.environ,
            module,
            **NO_CHANGE,
            folder=str(self.notes),
            capture_to=str(groups.folder()),
            steady_within_s=STEADY_WITHIN_S,
            window_s=WINDOW_S,
        )
        with (self.notes / "output.txt").open("wb") as output:
            self.child: psutil.Popen = groups.spawn(
                [sys.executable, script.name],
                env=env,
                cwd=script.parent,
                stdout=output,
                stderr=output,
            )

    def call_ms(self) -> float:
        """What a call takes in one turn."""
        resume(self.child)
        time.sleep(SETTLED_S)
        calls, begin = self._every.calls, time.monotonic()
        time.sleep(TURN_S - SETTLED_S)
        made, took_s = self._every.calls - calls, time.monotonic() - begin
        suspend(self.child)
        return took_s / made * 1e3


def slowed(script: Path, groups: ProcessGroups) -> Slowed:
    """Of one script, after a window was traced."""
    plain = Counted(script, "perfdoctor.trials.inside", groups)
    time.sleep(BEGUN_S)
    suspend(plain.child)
    observed = Counted(script, "tests.benchmarks.counted", groups)
    wait_for(observed.notes / RECORDED.format(1), observed.child)
    suspend(observed.child)
    after = [(plain.call_ms(), observed.call_ms()) for _ in range(TURNS)]
    for each in (plain, observed):
        groups.end(each.child)
    return Slowed(
        step_ms=median(each for each, _ in after),
        after=tuple(seen / alone for alone, seen in after),
    )


def main() -> None:
    """Each script once."""
    lines, data = [f"{'script':<18} ms/call    after a trace"], {}
    for which, name in SCRIPTS:
        case = next(each for each in cases(FOLDER / which) if named(each) == f"{name}-healthy")
        with tempfile.TemporaryDirectory() as folder, ProcessGroups() as groups:
            found = slowed(written(case, Path(folder)), groups)
        lines.append(f"{name:<18} {found.step_ms:>7.2f} {median(found.after) - 1:>+16.1%}")
        print(lines[-1], flush=True)
        data[name] = asdict(found)
    save("after_a_trace", lines, data, shown=False)


if __name__ == "__main__":
    main()
