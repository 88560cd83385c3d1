"""One bounded observed run: from a launch to an Observation."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from perfdoctor import __version__
from perfdoctor.observe.following import Within
from perfdoctor.observe.gpu import gpus
from perfdoctor.observe.host import host
from perfdoctor.observe.in_turn import InTurn
from perfdoctor.observe.libraries import environment, libraries
from perfdoctor.observe.parts import (
    compile_cache,
    eager,
    memory,
    own_backend,
    settings_made,
    within,
)
from perfdoctor.observe.probing import Settings, probe
from perfdoctor.observe.run import Watched, watch
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.observation import OF_THE_RUN, Observation, Target
from perfdoctor.schema.surroundings import Backend

ENDING_S = 2.0
"""What remains to be done when a run has been told to leave."""


def observe(
    target: Target,
    launch: Launch,
    groups: ProcessGroups,
    within_s: Within,
    say: Callable[[str], None],
    capture_to: Path | None = None,
    in_turn: InTurn | None = None,
) -> Observation:
    """Probe jax, then run the target once under the agent; takes `within_s` at most, or so much
    longer as a program takes that can only be killed.

    `capture_to`: the folder in which one step is saved, to be replayed; None: none is.
    `in_turn`: times that step in turn with the program's, once a window of it is recorded.
    """
    began = time.monotonic()
    say("asking jax for its devices")
    backend, settings, failure = probe(groups, launch.env, within_s.limit_s / 2)
    watched = Watched(None, None, None, failure)
    if failure is None:
        say("observing the run: compiling and warming up")
        left_s = within_s.less(time.monotonic() - began + ENDING_S)
        watched = watch(launch, groups, left_s, say, capture_to, in_turn)
    return observation_of(target, launch.env, backend, settings, watched, capture_to)


def observation_of(
    target: Target,
    env: dict[str, str],
    backend: Backend | None,
    settings: Settings,
    watched: Watched,
    capture_to: Path | None,
) -> Observation:
    """All that was seen. `env`, `settings`: of the process when it began, and imported jax."""
    recording, digest = watched.recording, watched.digest
    set_in_code = environment(recording.set_in_code) if recording else {}
    return Observation(
        schema="perfdoctor.observation/1",
        perfdoctor=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=target,
        host=within(host(), recording.affinity_cores if recording else 0),
        gpus=gpus() if watched.gpus is None else watched.gpus,
        libraries=libraries(),
        environment=environment({**env, **set_in_code}),
        set_in_code=tuple(set_in_code),
        backend=own_backend(backend, recording),
        failure=watched.failure,
        ended_s=watched.ended_s,
        settings=settings_made(settings, recording, env) if recording else None,
        compiles=digest.compiles if digest else None,
        compile_cache=compile_cache(recording) if recording else None,
        steps=digest.steps if digest else None,
        timeline=digest.timeline if digest else None,
        garbage=digest.garbage if digest else None,
        program=digest.program if digest else None,
        executable=digest.executable if digest else None,
        cost=digest.cost if digest else None,
        messages=tuple(recording.messages) if recording else None,
        calls=recording.step_calls if recording else None,
        eager=eager(recording, digest, capture_to) if recording else None,
        load=watched.load,
        threads=recording.threads if recording else None,
        memory=memory(recording) if recording and recording.window else None,
        not_measured=reasons(watched),
    )


def reasons(watched: Watched) -> dict[str, str]:
    """Why each missing part is missing."""
    if watched.digest is not None:
        recording = watched.recording
        failed = recording.capture_failure if recording else None
        missing = dict(watched.digest.not_measured) | ({"calls": failed} if failed else {})
        if watched.failure is not None and watched.digest.steps is None:
            missing = dict.fromkeys(missing, f"the run failed: {watched.failure.message}")
        return missing
    if watched.failure is None:
        return dict.fromkeys(OF_THE_RUN, watched.ended or "nothing was recorded")
    why = f"the run failed: {watched.failure.message}"
    parts = list(OF_THE_RUN)
    if watched.failure.stage != "run":
        parts.append("backend")
    return dict.fromkeys(parts, why)
