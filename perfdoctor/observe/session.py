"""One bounded observed run: from a launch to an Observation."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from perfdoctor import __version__
from perfdoctor.observe import load
from perfdoctor.observe.gpu import gpus
from perfdoctor.observe.host import host
from perfdoctor.observe.libraries import environment, libraries
from perfdoctor.observe.probing import Settings, describe, probe
from perfdoctor.processes import Ward, out_of_memory, python_module, tree
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.memory import Memory
from perfdoctor.schema.observation import OF_THE_RUN, Observation, Target
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import CompileCache, Failure, Setting
from perfdoctor.schema.surroundings import Gpu, Load

WINDOW_S = 3.0
"""Traced: enough for a hundred steps of 30 ms, and read in a second."""
LEAVE_S = 10.0
"""What a run may take to leave once all of it is recorded: one that is stopped in the middle of a
compilation sometimes hangs or crashes in XLA, observed or not."""
AFTER_WINDOW_S = 30.0
"""Grace for stopping the trace and the program."""
POLL_S = 0.02
TOLD = re.compile(r"Warning: (.*donated buffers were not usable.*)")
"""Warnings of JAX in the run's log that a check reads."""


@dataclass(frozen=True)
class Watched:
    """What came back from the observed process."""

    recording: Recording | None
    digest: Digest | None
    load: Load | None
    failure: Failure | None
    messages: tuple[str, ...] | None = None
    gpus: tuple[Gpu, ...] | None = None
    """While the window was open."""


def observe(
    target: Target, launch: Launch, ward: Ward, limit_s: float, say: Callable[[str], None]
) -> Observation:
    """Probe jax, then run the target once under the agent; takes `limit_s` at most, and some."""
    say("asking jax for its devices")
    backend, settings, failure = probe(ward, launch.env, limit_s / 2)
    watched = Watched(None, None, None, failure)
    if failure is None:
        say("observing the run: compiling and warming up")
        watched = watch(launch, ward, limit_s, say)
    recording, digest = watched.recording, watched.digest
    return Observation(
        schema="perfdoctor.observation/1",
        perfdoctor=__version__,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=target,
        host=host(),
        gpus=gpus() if watched.gpus is None else watched.gpus,
        libraries=libraries(),
        environment=environment(launch.env),
        backend=backend,
        failure=watched.failure,
        settings=settings_made(settings, recording, launch.env) if recording else None,
        compiles=digest.compiles if digest else None,
        compile_cache=compile_cache(recording) if recording else None,
        steps=digest.steps if digest else None,
        garbage=digest.garbage if digest else None,
        program=digest.program if digest else None,
        executable=digest.executable if digest else None,
        messages=watched.messages,
        load=watched.load,
        threads=recording.threads if recording else None,
        memory=memory(recording) if recording and recording.window else None,
        not_measured=reasons(watched),
    )


def reasons(watched: Watched) -> dict[str, str]:
    """Why each missing part is missing."""
    if watched.failure is not None:
        why = f"the run failed: {watched.failure.message}"
        parts = list(OF_THE_RUN)
        if watched.failure.stage != "run":
            parts.append("backend")
        return dict.fromkeys(parts, why)
    if watched.digest is None:
        return {}
    return dict(watched.digest.not_measured)


def watch(launch: Launch, ward: Ward, limit_s: float, say: Callable[[str], None]) -> Watched:
    """Run the target under the agent, and understand what it recorded."""
    folder = ward.folder()
    (folder / "programs").mkdir()
    env = {
        **launch.env,
        "JAX_DUMP_IR_TO": str(folder / "programs"),
        "JAX_DUMP_IR_MODES": "stablehlo",
    }
    arguments = [str(folder), str(limit_s), str(WINDOW_S), launch.module, *launch.arguments]
    start = time.monotonic()
    with (folder / "log").open("wb") as log:
        child = ward.spawn(
            python_module("perfdoctor.observe.agent", *arguments), env=env, stdout=log, stderr=log
        )
        measured, accelerators = follow(
            child, folder, start + limit_s + WINDOW_S + AFTER_WINDOW_S, say
        )
        code = child.poll()
        ward.end(child)
    failure = why_failed(folder, code, time.monotonic() - start)
    told = dict.fromkeys(TOLD.findall((folder / "log").read_text(errors="replace")))
    recording = read_recording(folder)
    digest = None
    if failure is None and recording is not None:
        say("reading the trace")
        digest = digested(folder, ward)
        if digest is None:
            log_tail = "".join((folder / "log").read_text(errors="replace").splitlines()[-1:])
            message = f"what was recorded can't be understood: {log_tail}"
            failure = Failure(stage="run", kind="raised", message=message, seconds=0.0)
    ward.discard(folder)
    return Watched(recording, digest, measured, failure, tuple(told), accelerators)


def follow(
    child: psutil.Popen, folder: Path, until: float, say: Callable[[str], None]
) -> tuple[Load | None, tuple[Gpu, ...] | None]:
    """Wait for the end of the run; measure load and accelerators while a window is open."""
    measured, accelerators, before, attempt = None, None, None, 1
    while child.poll() is None and time.monotonic() < until:
        if before is None and (folder / f"window-open-{attempt}").exists():
            say(f"observing the run: {WINDOW_S:.0f} s of steps")
            before = load.read(child)
            accelerators = gpus(frozenset(process.pid for process in tree(child)))
        elif before and (folder / f"window-closed-{attempt}").exists():
            measured, before, attempt = load.between(before, load.read(child)), None, attempt + 1
        elif (folder / "recording.json").exists():
            until = min(until, time.monotonic() + LEAVE_S)
        time.sleep(POLL_S)
    return measured, accelerators


def why_failed(folder: Path, code: int | None, seconds: float) -> Failure | None:
    """None if the run was recorded up to the end of its window, or ended well before."""
    recorded = (folder / "recording.json").exists()
    stopped = recorded and (folder / "window-closed-1").exists() and (code is None or code < 0)
    if stopped or (recorded and code == 0):
        return None
    lines = (folder / "log").read_text(errors="replace").strip().splitlines()
    if code is None:
        message = f"no end within {seconds:.0f} s"
        return Failure(stage="run", kind="hung", message=message, seconds=seconds)
    if exhausted := out_of_memory(lines):
        return Failure(stage="run", kind="out-of-memory", message=exhausted, seconds=seconds)
    if code > 0 and lines:
        return Failure(stage="run", kind="raised", message=lines[-1], seconds=seconds)
    return Failure(stage="run", kind="killed", message=describe(code), seconds=seconds)


def read_recording(folder: Path) -> Recording | None:
    """What the agent left, if it came so far."""
    try:
        return msgspec.json.decode((folder / "recording.json").read_bytes(), type=Recording)
    except OSError:
        return None


def digested(folder: Path, ward: Ward) -> Digest | None:
    """Have the recording understood by a process that may load jaxlib."""
    with (folder / "log").open("ab") as log:
        child = ward.spawn(
            python_module("perfdoctor.observe.digest", str(folder)), stdout=log, stderr=log
        )
        child.wait()
        ward.end(child)
    try:
        return msgspec.json.decode((folder / "digest.json").read_bytes(), type=Digest)
    except OSError:
        return None


def settings_made(
    at_import: Settings, recording: Recording, env: dict[str, str]
) -> tuple[Setting, ...]:
    """The settings that are not JAX's defaults, and whether the environment or code made them."""
    made = []
    for name, value in sorted(recording.settings.items()):
        if name in at_import and value != at_import[name]:
            made.append(Setting(name=name, value=value, origin="code"))
        elif name.upper() in env:
            made.append(Setting(name=name, value=value, origin="environment"))
    return tuple(made)


def compile_cache(recording: Recording) -> CompileCache:
    """JAX's persistent cache, as far as the run used it."""
    folder = recording.settings.get("jax_compilation_cache_dir")
    return CompileCache(
        folder=str(folder) if folder else None,
        hits=recording.cache_hits,
        misses=recording.cache_misses,
    )


def memory(recording: Recording) -> Memory:
    """The target's memory, and what was left beside it."""
    return Memory(
        rss_bytes=recording.rss_bytes,
        peak_rss_bytes=recording.peak_rss_bytes,
        available_bytes=recording.available_bytes,
        swapped_bytes=recording.swapped_bytes,
        samples=tuple(recording.memory_samples),
        arrays=tuple(recording.arrays),
        devices=tuple(recording.device_memory),
    )
