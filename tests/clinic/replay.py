"""Captures a step of each healthy script, replays it alone, and compares it with what is known.

python -m tests.clinic.replay [NAME …]

The scripts are the styles of tests/clinic/patients and those of the ward, which lies in $WARD
(../shared/ward if not told). By hand were written: the roles of all arguments (roles.toml), and a
loop of each script's step with nothing on the host (tests/clinic/loops), which is timed in turn
with the captured step, slice by slice. A row has: whether all roles are right, what the step takes
by the loop and alone, what it takes in the script and emulated. Rows of earlier runs are kept.
"""

import json
import os
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from typing import Any

import msgspec

from perfdoctor.observe.following import Within
from perfdoctor.observe.session import observe
from perfdoctor.processes import ProcessGroups
from perfdoctor.replay.conditions import alone
from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.replay import Replay
from perfdoctor.replay.slices import a_step_ms
from perfdoctor.schema.calls import Leaf, StepCalls
from perfdoctor.schema.capture import AS_IT_IS, MANIFEST, Capture
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import Target
from perfdoctor.trials.live import WorkerEnded
from tests.clinic.loops import WARD, names
from tests.clinic.patient import lay_out, patients
from tests.saved import save

NAME = "replay"
RESULTS = Path(__file__).parent / "results" / f"{NAME}.json"
ROLES = Path(__file__).parent / "roles.toml"
LIMIT_S = 60.0
ROUNDS, SLICE_S = 15, 0.3
"""Slices of the captured step, and of the loop written by hand, in turns; seconds of each."""
STEP = re.compile(r"step_ms=([\d.]+)")
OF_THE_WARD = "ward_"


@dataclass(frozen=True)
class Row:
    """One script."""

    name: str
    wrong: tuple[str, ...]
    """Arguments whose role is another than what was written down; or what went wrong at all."""
    arguments: int = 0
    loop_ms: float | None = None
    alone_ms: float | None = None
    observed_ms: float | None = None
    emulated_ms: float | None = None
    seconds: float = 0.0

    @property
    def alone_error(self) -> float | None:
        """Of the step alone, by the hand-written loop."""
        return ratio(self.alone_ms, self.loop_ms)

    @property
    def emulated_error(self) -> float | None:
        """Of the emulated step, by the observed one."""
        return ratio(self.emulated_ms, self.observed_ms)


def ratio(found: float | None, true: float | None) -> float | None:
    """Less one."""
    return found / true - 1 if found and true else None


def launch_of(name: str, folder: Path) -> Launch:
    """The healthy script, laid out in a folder."""
    if name.startswith(OF_THE_WARD):
        script = name.removeprefix(OF_THE_WARD)
        known = json.loads((WARD / "cases.json").read_text())["patients"].values()
        steps = next(each["check_steps"] for each in known if each["files"] == [f"{script}.py"])
        source = WARD / "patients" / f"{script}.py"
        (folder / source.name).write_text(source.read_text())
        return Launch(
            command=(source.name, "--steps", str(2 * steps)), env=dict(os.environ), folder=folder
        )
    patient = next(each for each in patients() if each.name == name)
    lay_out(patient, folder)
    return Launch(
        command=(*patient.command, *patient.args),
        env={**os.environ, **patient.env},
        folder=folder,
    )


def in_turns(name: str, groups: ProcessGroups, launch: Launch, folder: Path) -> tuple[float, float]:
    """What a step takes in milliseconds, by the hand-written loop and alone; medians of slices of
    the two in turns, each in a process of its own.
    """
    capture = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)
    captured = ReplayProcess(groups, launch.env, folder, capture, Change())
    until, steps = time.monotonic() + LIMIT_S, []
    command = [sys.executable, "-m", "tests.clinic.loops", name]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as by_hand:
        assert by_hand.stdin is not None and by_hand.stdout is not None
        for _ in range(1 + ROUNDS):
            by_hand.stdin.write(f"{SLICE_S}\n")
            by_hand.stdin.flush()
            told = STEP.search(by_hand.stdout.readline())
            if told is None:
                raise WorkerEnded("the loop that was written by hand has ended")
            ran = captured.run(alone(AS_IT_IS), SLICE_S, until)
            steps.append((float(told[1]), a_step_ms(ran)))
        by_hand.stdin.close()
    loop, replayed = zip(*steps[1:], strict=True)
    return median(loop), median(replayed)


def examined(name: str, known: Mapping[str, Any]) -> Row:
    """One script: observed, captured, replayed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ProcessGroups() as groups:
        launch, capture = launch_of(name, Path(folder)), groups.folder()
        target = Target(kind="script", name=name)
        with Replay(groups, launch.env, capture, quiet) as replay:
            within_s = Within.at_most(LIMIT_S)
            observation = observe(target, launch, groups, within_s, quiet, capture, replay.in_turn)
            calls = observation.calls
            if calls is None:
                return Row(name, (observation.not_measured.get("calls", "no calls"),))
            wrong, count = wrong_roles(calls, known), sum(len(each.leaves) for each in calls.calls)
            try:
                told = replay.told(observation, time.monotonic() + LIMIT_S)
            except WorkerEnded as error:
                return Row(name, (*wrong, str(error)), count, observed_ms=calls.time_ms)
        try:
            by_hand_ms, alone_ms = in_turns(name, groups, launch, capture)
        except WorkerEnded as error:
            return Row(name, (*wrong, str(error)), count, observed_ms=told.observed_ms)
    seconds = round(time.monotonic() - start, 1)
    return Row(
        name, wrong, count, by_hand_ms, alone_ms, told.observed_ms, told.emulated_ms, seconds
    )


def quiet(text: str) -> None:
    """The table is all that is printed."""


def wrong_roles(calls: StepCalls, known: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that are not what was written down, and calls that no step makes."""
    found, expected = [each.function for each in calls.calls], list(known["step"])
    if not any(found == expected[n:] + expected[:n] for n in range(len(expected))):
        return (f"a step is {' '.join(found)}, not {' '.join(expected)}",)
    return tuple(
        f"{call.function}.{leaf.argument}: {leaf.role} {leaf.kind}, not {role}"
        for call in calls.calls
        for leaf in call.leaves
        if (role := role_of(leaf, known["roles"].get(call.function, {}))) is not None
        and role != f"{leaf.role} {leaf.kind}"
    )


def role_of(leaf: Leaf, roles: Mapping[str, str]) -> str | None:
    """What was written down for the longest part of its path; None if nothing was."""
    fitting = [name for name in roles if leaf.argument.startswith(name)]
    return roles[max(fitting, key=len)] if fitting else "unknown"


HEADING = (
    f"{'script':<24} {'arguments':>9} {'roles':>6} {'loop ms':>9} {'alone ms':>9} {'off':>6} "
    f"{'script ms':>9} {'emulated':>9} {'off':>6}"
)


def line(row: Row) -> str:
    """A row of the printed table."""

    def told(value: float | None) -> str:
        return f"{value:.3f}" if value is not None else "-"

    def off(value: float | None) -> str:
        return f"{value:+.1%}" if value is not None else "-"

    roles = "right" if not row.wrong else "WRONG"
    text = (
        f"{row.name:<24} {row.arguments:>9} {roles:>6} {told(row.loop_ms):>9} "
        f"{told(row.alone_ms):>9} {off(row.alone_error):>6} {told(row.observed_ms):>9} "
        f"{told(row.emulated_ms):>9} {off(row.emulated_error):>6}"
    )
    shown = [f"    {each}" for each in row.wrong[:3]]
    return "\n".join([text, *shown])


def scores(rows: Sequence[Row]) -> list[str]:
    """What the table amounts to."""
    alone = [abs(row.alone_error) for row in rows if row.alone_error is not None]
    emulated = [abs(row.emulated_error) for row in rows if row.emulated_error is not None]
    right = sum(not row.wrong for row in rows)
    return [
        f"{len(rows)} scripts: all roles right in {right}",
        f"alone within 5 % of the loop written by hand: {sum(e <= 0.05 for e in alone)} of "
        f"{len(rows)}; off by {median(alone):.1%} in the median",
        f"emulated within 10 % of the script: {sum(e <= 0.1 for e in emulated)} of {len(rows)}; "
        f"off by {median(emulated):.1%} in the median",
    ]


def saved_rows() -> dict[str, Row]:
    """Of earlier runs."""
    if not RESULTS.exists():
        return {}
    kept = json.loads(RESULTS.read_text())
    return {each["name"]: Row(**{**each, "wrong": tuple(each["wrong"])}) for each in kept}


def main() -> None:
    """All scripts, or those that are named."""
    known, rows = tomllib.loads(ROLES.read_text()), saved_rows()
    print(HEADING, flush=True)
    for name in sys.argv[1:] or names():
        rows[name] = examined(name, known[name])
        print(line(rows[name]), flush=True)
        ordered = [rows[each] for each in names() if each in rows]
        if len(ordered) > 1:
            table = [HEADING, *map(line, ordered), "", *scores(ordered)]
            save(NAME, table, [asdict(each) for each in ordered], shown=False)
    print("\n".join(["", *scores(list(rows.values()))]))


if __name__ == "__main__":
    main()
