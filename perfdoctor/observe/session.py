"""One bounded observed run: from a launch to an Observation."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from perfdoctor import __version__
from perfdoctor.files import write_whole
from perfdoctor.injection import injected
from perfdoctor.injection.bootstrap import ATTACHED, BROKEN, LEFT, RAISED, STOP
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
from perfdoctor.schema.recording import KNOWN, Recording
from perfdoctor.schema.run import CompileCache, Failure, Setting
from perfdoctor.schema.surroundings import Gpu, Host, Load

WINDOW_S = 2.0
"""Traced: enough for a hundred steps of 20 ms. Writing and reading a second of a dense program's
trace takes a second more, beside the program: more would cost it over 2 % of a minute."""
LEAVE_S = 5.0
"""What a run may take to leave once it was asked to: one that is stopped in the middle of a
compilation sometimes hangs or crashes in XLA, observed or not."""
ENDING_S = 2.0
"""What remains to be done when a run has been told to leave."""
READING_S = 4.0
"""What reading a trace takes."""
POLL_S = 0.02
OPENED, CLOSED, RECORDED, AGAIN = "open-{}", "closed-{}", "recorded-{}", "again-{}"
"""Files of the n-th window; see `observe.agent.watch`."""


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
    """When it did, if well."""


def observe(
    target: Target,
    launch: Launch,
    ward: Ward,
    limit_s: float,
    say: Callable[[str], None],
    capture_to: Path | None = None,
) -> Observation:
    """Probe jax, then run the target once under the agent; takes `limit_s` at most, or so much
    longer as a program takes that can only be killed.

    `capture_to`: the folder in which one step is saved, to be replayed; None: none is.
    """
    until = time.monotonic() + limit_s - ENDING_S
    say("asking jax for its devices")
    backend, settings, failure = probe(ward, launch.env, limit_s / 2)
    watched = Watched(None, None, None, failure)
    if failure is None:
        say("observing the run: compiling and warming up")
        watched = watch(launch, ward, max(1.0, until - time.monotonic()), say, capture_to)
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
        environment=environment({**launch.env, **set_in_code}),
        set_in_code=tuple(set_in_code),
        backend=backend,
        failure=watched.failure,
        ended_s=watched.ended_s,
        settings=settings_made(settings, recording, launch.env) if recording else None,
        compiles=digest.compiles if digest else None,
        compile_cache=compile_cache(recording) if recording else None,
        steps=digest.steps if digest else None,
        garbage=digest.garbage if digest else None,
        program=digest.program if digest else None,
        executable=digest.executable if digest else None,
        messages=tuple(recording.messages) if recording else None,
        calls=recording.step_calls if recording else None,
        load=watched.load,
        threads=recording.threads if recording else None,
        memory=memory(recording) if recording and recording.window else None,
        not_measured=reasons(watched),
    )


def within(machine: Host, affinity_cores: int) -> Host:
    """The host as the program may use it, which may have bound itself to fewer cores."""
    if not 0 < affinity_cores < machine.affinity_cores:
        return machine
    return msgspec.structs.replace(
        machine,
        affinity_cores=affinity_cores,
        usable_cores=min(machine.usable_cores, float(affinity_cores)),
    )


def reasons(watched: Watched) -> dict[str, str]:
    """Why each missing part is missing."""
    if watched.digest is not None:
        recording = watched.recording
        failed = recording.capture_failure if recording else None
        return dict(watched.digest.not_measured) | ({"calls": failed} if failed else {})
    if watched.failure is None:
        return dict.fromkeys(OF_THE_RUN, watched.ended or "nothing was recorded")
    why = f"the run failed: {watched.failure.message}"
    parts = list(OF_THE_RUN)
    if watched.failure.stage != "run":
        parts.append("backend")
    return dict.fromkeys(parts, why)


def watch(
    launch: Launch,
    ward: Ward,
    limit_s: float,
    say: Callable[[str], None],
    capture_to: Path | None,
) -> Watched:
    """Run the target under the agent, and understand what it recorded."""
    folder = ward.folder()
    env = injected(
        launch.env,
        "perfdoctor.observe.agent.watch",
        folder=str(folder),
        steady_within_s=max(0.0, limit_s - 2 * WINDOW_S - READING_S),
        window_s=WINDOW_S,
        capture_to=str(capture_to) if capture_to else None,
    )
    start, began = time.monotonic(), time.time()
    with (folder / "log").open("wb") as log:
        child = ward.spawn(
            [sys.executable, *launch.command],
            env=env,
            cwd=launch.folder,
            stdin=subprocess.DEVNULL if launch.output is None else None,
            stdout=log if launch.output is None else launch.output,
            stderr=log if launch.output is None else launch.output,
        )
        following = Following(child, folder, ward, start + limit_s, say)
        following.to_the_end()
        code = child.poll()
        ward.end(child)
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
        message = f"what was recorded can't be understood: {last_line(folder)}"
        failure = Failure(stage="run", kind="raised", message=message, seconds=0.0)
    ended = how_ended(folder, seconds)
    ward.discard(folder)
    ended_s = seconds if code == 0 and not following.asked else None
    return Watched(recording, digest, following.load, failure, following.gpus, ended, ended_s)


class Following:
    """Follows a run from window to window, until enough was seen or the time is up."""

    def __init__(
        self,
        child: psutil.Popen,
        folder: Path,
        ward: Ward,
        until: float,
        say: Callable[[str], None],
    ) -> None:
        self.number = 0
        """Windows recorded and understood."""
        self.digest: Digest | None = None
        """Of the last of them."""
        self.load: Load | None = None
        self.gpus: tuple[Gpu, ...] | None = None
        self.asked = False
        """Whether it was we who ended the run."""
        self._child, self._folder, self._ward, self._say = child, folder, ward, say
        self._until = until
        self._before: load.Reading | None = None

    def to_the_end(self) -> None:
        """Until the run has ended, or does not although it was asked to."""
        while self._child.poll() is None:
            if self._measures_load():
                pass
            elif self._has(RECORDED):
                self._read()
            elif time.monotonic() > self._until:
                self._ask_to_stop()
            if self.asked:
                break
            time.sleep(POLL_S)
        with suppress(psutil.TimeoutExpired):
            self._child.wait(LEAVE_S)

    def read_the_rest(self) -> None:
        """What was recorded when the run ended by itself, before we could understand it."""
        recorded = (self._folder / "recording.json").exists()
        if recorded and (self.number == 0 or self._has(RECORDED)):
            self._say("reading the trace")
            newest = digested(self._folder, self._ward, self._until)
            if self.digest is None or (newest is not None and newest.steps is not None):
                self.digest = newest

    def _has(self, name: str) -> bool:
        return (self._folder / name.format(self.number + 1)).exists()

    def _measures_load(self) -> bool:
        """Load and accelerators from the begin of a window to its end."""
        if self._has(CLOSED):
            if self._before is not None:
                self.load = load.between(self._before, load.read(self._child))
                self._before = None
            return False
        if self._before is None and self._has(OPENED):
            self._say(f"observing the run: {WINDOW_S:.0f} s of steps")
            self._before = load.read(self._child)
            self.gpus = gpus(frozenset(process.pid for process in tree(self._child)))
        return self._before is not None

    def _read(self) -> None:
        """Understand a window, and decide whether it was enough."""
        self._say("reading the trace")
        self.digest = digested(self._folder, self._ward, self._until)
        self.number += 1
        next_s = self.digest.next_window_s if self.digest else None
        left_s = self._until - time.monotonic() - READING_S
        if self._child.poll() is not None:
            return
        if next_s is None or left_s < WINDOW_S:
            self._ask_to_stop()
            return
        self._say("observing the run: too little was seen, looking longer")
        answer = self._folder / AGAIN.format(self.number)
        known = KNOWN if self.digest and self.digest.is_step_known else ""
        write_whole(answer, f"{min(next_s, left_s)} {known}".encode())

    def _ask_to_stop(self) -> None:
        """As Ctrl-C would: by the agent, which keeps the traceback to itself, if it is there."""
        self.asked = True
        (self._folder / STOP).touch()
        if not self._has(RECORDED) and self.number == 0:
            with suppress(psutil.Error):
                self._child.send_signal(signal.SIGINT)


def why_failed(folder: Path, code: int | None, seconds: float) -> Failure | None:
    """Why a run that was not stopped by us ended other than well."""
    if code == 0:
        return None
    raised = folder / RAISED
    if code is None or (folder / STOP).exists():
        message = f"no training step within {seconds:.0f} s"
        return Failure(stage="run", kind="hung", message=message, seconds=seconds)
    lines = (folder / "log").read_text(errors="replace").strip().splitlines()
    if raised.exists():
        lines.append(raised.read_text())
    if exhausted := out_of_memory(lines):
        return Failure(stage="run", kind="out-of-memory", message=exhausted, seconds=seconds)
    if code > 0 and lines:
        return Failure(stage="run", kind="raised", message=lines[-1], seconds=seconds)
    return Failure(stage="run", kind="killed", message=describe(code), seconds=seconds)


def ran_s(folder: Path, began: float, now: float) -> float:
    """How long a run took; it may have left while we were reading its trace."""
    left = folder / LEFT
    return (left.stat().st_mtime if left.exists() else now) - began


def how_ended(folder: Path, seconds: float) -> str:
    """A run that left nothing to read, in words."""
    if not (folder / ATTACHED).exists():
        return f"the program ended after {seconds:.1f} s, and never imported jax"
    return f"the program ended after {seconds:.1f} s, and jax computed nothing"


def last_line(folder: Path) -> str:
    """Of the log."""
    return "".join((folder / "log").read_text(errors="replace").splitlines()[-1:])


def read_recording(folder: Path) -> Recording | None:
    """What the agent left, if it came so far."""
    try:
        return msgspec.json.decode((folder / "recording.json").read_bytes(), type=Recording)
    except OSError:
        return None


def digested(folder: Path, ward: Ward, until: float) -> Digest | None:
    """Have the recording understood by a process that may load jaxlib.

    `until`: instant of time.monotonic() at which that is given up: a trace of millions of events.
    """
    with (folder / "log").open("ab") as log:
        child = ward.spawn(
            python_module("perfdoctor.observe.digest", str(folder)), stdout=log, stderr=log
        )
        try:
            child.wait(max(READING_S, until - time.monotonic()))
        except psutil.TimeoutExpired:
            log.write(b"the budget ended before its trace was read; give it more\n")
        ward.end(child, grace_s=0.1)
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
