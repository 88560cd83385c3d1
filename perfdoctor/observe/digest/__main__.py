"""Understand a recording, in a process of its own: it needs jaxlib, which the doctor never loads.

python -m perfdoctor.observe.digest FOLDER: reads the folder's recording, trace and programs, writes
`digest.json` there.
"""

import sys
from pathlib import Path

import msgspec

from perfdoctor.observe.digest import program, timeline
from perfdoctor.observe.digest.compiles import compiles_of
from perfdoctor.observe.digest.garbage import garbage_of
from perfdoctor.observe.digest.steps import steps_of
from perfdoctor.processes import die_with_parent
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.recording import Recording


def main() -> None:
    """From raw signals to the parts of an Observation."""
    die_with_parent()
    folder = Path(sys.argv[1])
    recording = msgspec.json.decode((folder / "recording.json").read_bytes(), type=Recording)
    seen = timeline.read(folder / "trace")
    steps = steps_of(seen, recording) if seen else None
    step_program = program.read(folder / "programs", steps.function) if steps else None
    if steps and step_program and (batch := program.batch_size(step_program)):
        rate = batch / steps.time_ms * 1e3
        steps = msgspec.structs.replace(steps, batch_size=batch, samples_per_s=rate)
    digest = Digest(
        compiles=compiles_of(recording),
        garbage=garbage_of(recording),
        steps=steps,
        program=step_program,
    )
    (folder / "digest.json").write_bytes(msgspec.json.encode(digest))


main()
