"""What a replay gains that takes what the script has compiled, and whether its step is the same.

python -m tests.benchmarks.as_compiled

Of healthy scripts of tests/clinic/fresh a step is captured, as `perfdoctor check` does it, and
replayed alone in two processes in turn: one takes the script's executables, the other one compiles
the exported programs. It is told how long each takes from its launch to the end of a first short
run, and the ratio of their step times.
"""

import json
import math
import random
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import msgspec

from perfdoctor.observe.following import Within
from perfdoctor.observe.session import observe
from perfdoctor.processes import ProcessGroups
from perfdoctor.replay.__main__ import compiled_anew
from perfdoctor.replay.conditions import alone
from perfdoctor.replay.process import ReplayProcess, capture_in
from perfdoctor.replay.slices import a_step_ms
from perfdoctor.runner import runner_of
from perfdoctor.schema.capture import AS_IT_IS, MANIFEST
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.targets.resolve import resolve
from tests.clinic.fresh import FOLDER, cases, written
from tests.saved import save

SCRIPTS = (
    ("first", "keyword_trainer"),
    ("first", "shapes_unet"),
    ("first", "twotower_recsys"),
    ("fourth", "credit_sgld"),
    ("sixth", "factor_sghmc"),
    ("seventh", "restock_sf"),
    ("ninth", "demandcast"),
    ("tenth", "flute_ddsp"),
    ("tenth", "swell_fno"),
    ("tenth", "ecg_resnet"),
)
WITHIN_S, SLICE_S, ROUNDS = 90.0, 0.4, 15


@dataclass(frozen=True)
class Compared:
    """Of one script: seconds to a first run, and each round's step times, in milliseconds."""

    script: str
    calls: int
    handed_over: int
    """Calls whose executables could be handed over."""
    ready_s: tuple[float, float]
    """With the script's executables, and compiled anew."""
    rounds_ms: tuple[tuple[float, float], ...]

    @property
    def ratio(self) -> float:
        """The step with the script's executables over the one that was compiled anew."""
        return math.exp(median(math.log(ours / anew) for ours, anew in self.rounds_ms))


def compared(name: str, script: Path) -> Compared:
    """One script's step, replayed in both ways."""
    with ProcessGroups() as groups:
        folder = groups.folder()
        target = resolve(str(script))
        assert not isinstance(target, Observation)
        runner = runner_of(target, groups, subprocess.DEVNULL, print, copied=False)
        observe(target, runner.launch, groups, Within.at_most(WITHIN_S), print, folder)
        capture = capture_in(folder)
        other = Path(shutil.copytree(folder, groups.folder() / "anew"))
        (other / MANIFEST).write_bytes(msgspec.json.encode(compiled_anew(capture)))
        until, step, sides = time.monotonic() + 3 * WITHIN_S, alone(AS_IT_IS), []
        ready_s: list[float] = []
        for each in (folder, other):
            begun = time.monotonic()
            process = ReplayProcess(groups, runner.launch.env, each, capture_in(each), Change())
            process.run(step, SLICE_S, until)
            ready_s.append(time.monotonic() - begun)
            sides.append(process)
        rounds_ms = []
        for _ in range(ROUNDS):
            order = random.sample(sides, 2)
            took_ms = {each: a_step_ms(each.run(step, SLICE_S, until)) for each in order}
            rounds_ms.append((took_ms[sides[0]], took_ms[sides[1]]))
    handed_over = sum(bool(call.executable) for call in capture.calls)
    pair = (ready_s[0], ready_s[1])
    return Compared(name, len(capture.calls), handed_over, pair, tuple(rounds_ms))


def main() -> None:
    """All of the scripts, one after the other."""
    rows: list[Compared] = []
    with tempfile.TemporaryDirectory() as scratch:
        for which, name in SCRIPTS:
            healthy = next(
                case
                for case in cases(FOLDER / which)
                if case["name"] == name and not case["expect"]
            )
            rows.append(compared(name, written(healthy, Path(scratch))))
            print(json.dumps(asdict(rows[-1])), flush=True)
    lines = [f"{'script':18} calls handed over   ready, s: taken   anew   step: taken over anew"]
    lines += [
        f"{row.script:18} {row.calls:5} {row.handed_over:11} {row.ready_s[0]:17.1f}"
        f" {row.ready_s[1]:6.1f} {row.ratio:23.3f}"
        for row in rows
    ]
    ratios = [row.ratio for row in rows if row.handed_over]
    lines += [
        "",
        f"step: {median(ratios):.3f} in the median, {min(ratios):.3f} to {max(ratios):.3f}",
    ]
    save("as_compiled", lines, [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
