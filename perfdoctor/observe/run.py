"""Runs a target under the agent, once."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.injection import injected
from perfdoctor.observe.ending import how_ended, last_line, ran_s, why_failed
from perfdoctor.observe.following import Following, Within, orders_within
from perfdoctor.observe.in_turn import InTurn
from perfdoctor.observe.reading import read_recording
from perfdoctor.processes import ProcessGroups
from perfdoctor.protocol import BROKEN, LOG
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import Failure
from perfdoctor.schema.surroundings import Gpu, Load


@dataclass(frozen=True)
class Watched:
    """What came back from the observed process."""

    recording: Recording | None
    digest: Digest | None
    load: Load | None
    failure: Failure | None
    gpus: tuple[Gpu, ...] | None = None
    """While the window was open."""
    ended: str | None = None
    """How the run ended by itself, in words."""
    ended_s: float | None = None
    """Seconds that it ran for, if it ended well. Those in which we suspended it don't count."""


def watch(
    launch: Launch,
    groups: ProcessGroups,
    within_s: Within,
    say: Callable[[str], None],
    capture_to: Path | None,
    in_turn: InTurn | None = None,
) -> Watched:
    """Run the target under the agent, and understand what it recorded."""
    folder = groups.folder()
    env = injected(
        launch.env,
        "perfdoctor.observe.agent.watch",
        folder=str(folder),
        capture_to=str(capture_to) if capture_to else None,
        **orders_within(within_s),
    )
    began = time.time()
    with (folder / LOG).open("wb") as log:
        child = groups.spawn(
            [sys.executable, *launch.command],
            env=env,
            cwd=launch.folder,
            stdin=subprocess.DEVNULL if launch.output is None else None,
            stdout=log if launch.output is None else launch.output,
            stderr=log if launch.output is None else launch.output,
        )
        following = Following(child, folder, groups, within_s, say, capture_to, in_turn)
        following.to_the_end()
        code = child.poll()
        groups.end(child)
    seconds = ran_s(folder, began, time.time())
    following.read_the_rest()
    digest = following.digest
    recording = read_recording(folder)
    has_seen = following.number > 0 or (digest is not None and digest.steps is not None)
    failure = None if following.asked and has_seen else why_failed(folder, code, seconds)
    if (broken := folder / BROKEN).exists() and failure is None:
        message = f"it could not be observed: {broken.read_text().splitlines()[-1]}"
        failure = Failure(stage="run", kind="raised", message=message, seconds=seconds)
    elif recording is not None and digest is None and failure is None:
        message = f"the recording can't be read: {last_line(folder)}"
        failure = Failure(stage="run", kind="raised", message=message, seconds=0.0)
    ended = how_ended(folder, seconds)
    groups.discard(folder)
    ran_to_its_end = code == 0 and not following.asked
    ended_s = seconds - following.rested_s if ran_to_its_end else None
    return Watched(recording, digest, following.load, failure, following.gpus, ended, ended_s)
