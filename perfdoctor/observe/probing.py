"""Learns what jax computes on, from a child process with a time limit: jax may fail or hang."""

import time
from collections.abc import Mapping

import msgspec
import psutil

from perfdoctor.processes import ProcessGroups, python_module
from perfdoctor.schema.probe import ProbeLine
from perfdoctor.schema.run import Failure
from perfdoctor.schema.surroundings import Backend

Settings = dict[str, bool | int | float | str | None]


def probe(
    groups: ProcessGroups, env: Mapping[str, str], limit_s: float
) -> tuple[Backend | None, Settings, Failure | None]:
    """The backend and JAX's settings after its import, or why there is none."""
    folder = groups.folder()
    start = time.monotonic()
    with (folder / "answer").open("wb") as answer, (folder / "log").open("wb") as log:
        child = groups.spawn(
            python_module("perfdoctor.observe.probe"), env=env, stdout=answer, stderr=log
        )
    try:
        code: int | None = child.wait(limit_s)
    except psutil.TimeoutExpired:
        code = None
    seconds = time.monotonic() - start
    groups.end(child, grace_s=0.5)
    lines = [
        msgspec.json.decode(line, type=ProbeLine)
        for line in (folder / "answer").read_bytes().splitlines()
    ]
    log_tail = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
    groups.discard(folder)
    if lines and (last := lines[-1]).backend is not None:
        return last.backend, last.settings, None
    return None, {}, failure(lines, code, seconds, "".join(log_tail))


def failure(lines: list[ProbeLine], code: int | None, seconds: float, log: str) -> Failure:
    """What kept the probe from an answer."""
    stage = next((line.stage for line in reversed(lines) if line.stage), None) or "import"
    raised = next((line.raised for line in lines if line.raised), None)
    if raised is not None:
        return Failure(stage=stage, kind="raised", message=raised, seconds=seconds)
    if code is None:
        message = f"no answer within {seconds:.0f} s"
        return Failure(stage=stage, kind="hung", message=message, seconds=seconds)
    message = log or f"the process ended with {describe(code)}"
    return Failure(stage=stage, kind="killed", message=message, seconds=seconds)


def describe(code: int) -> str:
    """An exit status in words."""
    return f"signal {-code}" if code < 0 else f"status {code}"
