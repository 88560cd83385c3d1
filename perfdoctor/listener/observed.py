"""What a listener saw as an Observation: the parts that need neither a trace nor the program."""

import gc
import os
import sys
import time
from statistics import median, quantiles
from typing import Any

import msgspec

from perfdoctor.diagnosis.handle import program_name
from perfdoctor.listener.clock import Clock, Sums
from perfdoctor.listener.hooks import Collections, Compilations
from perfdoctor.observe.agent.memory import (
    device_memory,
    memory_left_bytes,
    resident_bytes,
    swapped_bytes,
)
from perfdoctor.observe.agent.settings import settings
from perfdoctor.observe.digest.compiles import compiles_of
from perfdoctor.observe.digest.garbage import garbage_of
from perfdoctor.observe.machine import unobserved
from perfdoctor.observe.parts import settings_made
from perfdoctor.observe.probe import backend_of
from perfdoctor.observe.probing import probe
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.iterations import Iterations
from perfdoctor.schema.memory import Memory
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.recording import Recording, Window

NOT_SEEN = "a listener does not look at it; listener.diagnose() does"
PROBE_S = 15.0
"""That jax may take to tell what its settings are by default."""


def observed(
    seen: Sums,
    clock: Clock,
    collections: Collections,
    compilations: Compilations,
    began_ns: int,
) -> Observation:
    """All that is known by now; asks a process of its own for JAX's usual settings."""
    jax = sys.modules.get("jax")
    recording = recording_of(collections, compilations, began_ns, jax)
    told = iterations_of(seen, clock)
    target = Target(kind="script", name=program_name(), args=tuple(sys.argv[1:]))
    blank = unobserved(target, NOT_SEEN)
    return msgspec.structs.replace(
        blank,
        backend=backend_of(jax, 0.0, ()) if jax is not None else None,
        settings=settings_made(usual_settings(), recording, dict(os.environ)) if jax else None,
        compiles=compiles_of(recording),
        garbage=garbage_of(recording),
        memory=memory_of(jax) if jax is not None else None,
        iterations=told,
        not_measured=blank.not_measured | {"steps": in_words(told)},
    )


def in_words(told: Iterations | None) -> str:
    """What is known in place of steps."""
    if told is None:
        return "no iteration was told of yet: the listener tells every so many"
    return (
        f"an iteration takes {told.time_ms:.3g} ms, of which the loop waits {told.etl_ms:.3g} ms "
        "for its batch; what its steps do is not seen by listening, but by listener.diagnose()"
    )


def recording_of(
    collections: Collections, compilations: Compilations, began_ns: int, jax: Any
) -> Recording:
    """As the observer of a script would have written it."""
    return Recording(
        start_ns=began_ns,
        window=Window(start_ns=began_ns, end_ns=time.time_ns(), cpu_s=0.0, steady=True),
        collections=list(collections.with_sources()),
        compiles=list(compilations.events),
        live_objects=len(gc.get_objects()),
        frozen_objects=gc.get_freeze_count(),
        gc_thresholds=gc.get_threshold(),
        settings=settings(jax) if jax is not None else {},
    )


def usual_settings() -> dict[str, Any]:
    """JAX's, after its import and before any line of a program."""
    with ProcessGroups() as groups:
        env = {**os.environ, "JAX_PLATFORMS": "cpu"}
        _, found, _ = probe(groups, env, PROBE_S)
    return {name: value for name, value in found.items() if name != "jax_platforms"}


def memory_of(jax: Any) -> Memory:
    """Now; how it grows is not seen."""
    now, peak = resident_bytes()
    return Memory(
        rss_bytes=now,
        peak_rss_bytes=peak,
        available_bytes=memory_left_bytes(),
        swapped_bytes=swapped_bytes(),
        devices=tuple(device_memory(jax)),
    )


def iterations_of(seen: Sums, clock: Clock) -> Iterations | None:
    """The iterations of which was told; None if there are none."""
    if not seen.iterations or seen.passed_ns <= 0:
        return None
    count = seen.iterations
    lengths_ms = [each / 1e6 for each in clock.lengths_ns]
    is_told = seen.looks > 0
    return Iterations(
        count=count,
        seconds=seen.passed_ns / 1e9,
        time_ms=seen.passed_ns / count / 1e6,
        median_ms=median(lengths_ms),
        p95_ms=quantiles(lengths_ms, n=20)[-1] if len(lengths_ms) > 1 else lengths_ms[0],
        etl_ms=seen.etl_ns / count / 1e6,
        idle_etl_ms=seen.idle_etl_ns / count / 1e6 if is_told else None,
        step_ms=median(clock.steps_ns) / 1e6 if clock.steps_ns else None,
        idle_share=seen.idle_looks / seen.looks if is_told else None,
        gc_ms=seen.gc_ns / count / 1e6,
        batch_size=seen.samples / seen.sampled if seen.sampled else None,
        evaluation_s=seen.evaluation_ns / 1e9,
    )
