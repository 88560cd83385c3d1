"""Replays a captured step as it is told to.

python -m perfdoctor.replay FOLDER SETTINGS CORES [ANEW]: `SETTINGS` of JAX, as JSON, are made;
`CORES`, numbers with commas between them, take the place of the script's own; with `ANEW`, nothing
is taken that the script has compiled. Each line on stdin is an `Order`, each answer on stdout a
`Replayed`, both as JSON.
"""

import ctypes
import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import msgspec
from msgspec.structs import replace

from perfdoctor.kernel import die_with_parent, offer_to_the_oom_killer
from perfdoctor.replay.loop import Loop
from perfdoctor.schema.capture import ANEW, MANIFEST, Capture, Conditions, Order, Replayed

LEFT_OUT = ("dump", "cache", "explain", "log", "profil", "platform", "distributed", "pjrt", "mock")
"""Settings of the script that a replay must not or need not have: words in their names."""

CHECKED = ("jax_debug_nans", "jax_debug_infs", "jax_disable_jit")
"""Settings under which jax does more in a call than to run what is compiled."""
COMPILED = "compiled"
"""The folder of compiled programs, within that of the capture."""
KEEPING = {-3: 32 * 2**20, -1: 2**31 - 1, -2: 64 * 2**20}
"""Settings of mallopt(3): M_MMAP_THRESHOLD, as high as glibc sets it by itself, since larger pieces
are new pages in the program too; M_TRIM_THRESHOLD, as high as it goes; and M_TOP_PAD, the size of a
heap of a thread's arena, without which such a heap goes back to the kernel when it is empty."""


def impose(settings: dict[str, Any]) -> None:
    """Make JAX's settings, but those that a replay must not have."""
    for name, value in settings.items():
        if any(word in name for word in LEFT_OUT):
            continue
        if name in jax.config.values and jax.config.values[name] != value:
            try:
                jax.config.update(name, value)
            except Exception as error:
                print(f"{name} = {value!r} can't be set here: {error}", file=sys.stderr)


def compile_once(folder: Path, asked: list[str]) -> None:
    """Have what takes a second or longer to compile be compiled by the first process only that is
    asked for the same, in the same environment. `asked`: the settings, and the cores, among which
    XLA may divide a program when it compiles it.
    """
    same = repr((asked, sorted(os.environ.items()))).encode()
    own = folder / COMPILED / hashlib.sha256(same).hexdigest()[:16]
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_enable_compilation_cache", True)


def keep_freed_memory() -> None:
    """Have memory that is freed stay with this process, as it does in a program whose steps need no
    new pages. Else it is luck, from process to process: one step of 27 MB of intermediate results
    took 3.6 ms, or 10.5 where all their pages were new. Does nothing where the C library is another
    one than glibc.
    """
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in KEEPING.items():
            mallopt(setting, value)


def compiled_anew(capture: Capture) -> Capture:
    """The capture, without what XLA has compiled for its calls."""
    return replace(capture, calls=tuple(replace(each, executable="") for each in capture.calls))


def answered(
    loops: dict[Conditions, Loop], folder: Path, capture: Capture, order: Order
) -> Replayed:
    """Make the steps of an order."""
    try:
        if order.conditions not in loops:
            loops[order.conditions] = Loop(folder, capture, order.conditions)
        loop = loops[order.conditions]
        steps, wall_s = loop.run(order.seconds)
        return Replayed(
            steps=steps,
            wall_s=wall_s,
            inside_cpu_ms=loop.inside_cpu_ms,
            waited_ms=loop.waited_ms,
        )
    except Exception as error:
        text = next((line for line in str(error).splitlines() if line.strip()), "")
        return Replayed(failure=f"{type(error).__name__}: {text}"[:300])


def main() -> None:
    """Answer until there are no more orders."""
    die_with_parent()
    offer_to_the_oom_killer()
    folder, settings = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2])
    cores = [int(each) for each in sys.argv[3].split(",") if each]
    capture = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)
    if cores or capture.cores:
        os.sched_setaffinity(0, cores or capture.cores)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print is no answer
    impose(settings)
    if ANEW in sys.argv[4:] or any(jax.config.values.get(name) for name in CHECKED):
        capture = compiled_anew(capture)
    compile_once(folder, sys.argv[2:4])
    if capture.reuses_memory:
        keep_freed_memory()
    loops: dict[Conditions, Loop] = {}
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        answers.write(msgspec.json.encode(answered(loops, folder, capture, order)) + b"\n")


if __name__ == "__main__":
    main()
