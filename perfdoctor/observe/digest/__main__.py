"""Understand a recording, in a process of its own: it needs jaxlib, which the doctor never loads.

python -m perfdoctor.observe.digest FOLDER: reads the folder's recording, trace and programs, writes
`digest.json` there.
"""

import sys
from pathlib import Path

import msgspec

from perfdoctor.observe.digest import program, timeline
from perfdoctor.observe.digest.compiles import compiles_of, tracing_of
from perfdoctor.observe.digest.executable import executable_of
from perfdoctor.observe.digest.garbage import garbage_of
from perfdoctor.observe.digest.steps import FEWEST_STEPS, steps_of
from perfdoctor.processes import die_with_parent
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.program import Program
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import Steps


def digest(folder: Path) -> Digest:
    """From raw signals to the parts of an Observation."""
    recording = msgspec.json.decode((folder / "recording.json").read_bytes(), type=Recording)
    missing = dict(recording.failures)
    steps, step_program, executable = None, None, None
    if recording.window is None:
        why = "the run ended before it was steady; give it more steps"
        missing |= dict.fromkeys(("steps", "garbage", "program", "executable", "threads"), why)
    elif (steps := seen_steps(folder, recording)) is None:
        why = why_no_steps(recording)
        missing |= dict.fromkeys(("steps", "program", "executable"), why)
    else:
        executable = executable_of(folder, steps.function, recording)
        try:
            step_program = program.read(folder / "programs", steps.function)
        except Exception as error:  # jaxlib's parser is no stable interface
            missing["program"] = f"the StableHLO of {steps.function} can't be read: {error}"
    return Digest(
        compiles=compiles_of(recording),
        garbage=garbage_of(recording),
        steps=with_batch(steps, step_program),
        program=step_program,
        executable=executable,
        not_measured=missing,
    )


def seen_steps(folder: Path, recording: Recording) -> Steps | None:
    """The steps of the traced window."""
    seen = timeline.read(folder / "trace")
    if seen is None:
        return None
    return steps_of(timeline.without_tracing(seen, tracing_of(recording)), recording)


def why_no_steps(recording: Recording) -> str:
    """What kept the steps of the window from being counted."""
    window = recording.window
    compiled = window and any(
        window.start_ns <= c.end_ns <= window.end_ns for c in recording.compiles
    )
    again = "; something compiles in them again and again" if compiled else ""
    return f"fewer than {FEWEST_STEPS} steps in the traced window that hold no compilation{again}"


def with_batch(steps: Steps | None, step_program: Program | None) -> Steps | None:
    """Adds the batch size that the program shows, and the throughput that follows from it."""
    batch = program.batch_size(step_program) if step_program else None
    if steps is None or batch is None:
        return steps
    rate = batch / steps.time_ms * 1e3
    return msgspec.structs.replace(steps, batch_size=batch, samples_per_s=rate)


if __name__ == "__main__":
    die_with_parent()
    here = Path(sys.argv[1])
    (here / "digest.json").write_bytes(msgspec.json.encode(digest(here)))
