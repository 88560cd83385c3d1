"""The probe: imports jax, lists its devices, and says so line by line on stdout.

python -m perfdoctor.observe.probe
"""

import logging
import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.kernel import die_with_parent
from perfdoctor.observe.agent.devices import devices
from perfdoctor.observe.agent.settings import settings
from perfdoctor.schema.probe import ProbeLine
from perfdoctor.schema.surroundings import Backend, GpuLibrary


class Collector(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    """Say each stage before it begins, so that the reader knows in which one we hang."""
    die_with_parent()
    with os.fdopen(os.dup(1), "wb", buffering=0) as answer:
        os.dup2(2, 1)  # what libraries print is no answer

        def say(line: ProbeLine) -> None:
            answer.write(msgspec.json.encode(line) + b"\n")

        try:
            look(say)
        except Exception as error:
            say(ProbeLine(raised=in_words(error)))


def in_words(error: Exception) -> str:
    """An exception in one line; where it has no text (a bare assert), the line that raised it."""
    text = " ".join(str(error).split())
    if not text:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{where.line} ({Path(where.filename).name}:{where.lineno})"
    return f"{type(error).__name__}: {text}"


def gpu_libraries() -> tuple[GpuLibrary, ...]:
    """NVIDIA's libraries as jax's CUDA plugin sees them; none where there is no such plugin."""
    with suppress(ImportError):
        from jax._src.lib import cuda_versions

        names = (name.removesuffix("_build_version") for name in dir(cuda_versions))
        known = [name for name in names if hasattr(cuda_versions, f"{name}_get_version")]
        return tuple(gpu_library(cuda_versions, name) for name in known)
    return ()


def gpu_library(versions: Any, name: str) -> GpuLibrary:
    """What the plugin's module of versions tells of a library, which need not be there."""
    loaded, error = answer(versions, f"{name}_get_version")
    built_for, _ = answer(versions, f"{name}_build_version")
    return GpuLibrary(
        name=name.removesuffix("_runtime"), loaded=loaded, built_for=built_for, error=error
    )


def answer(versions: Any, name: str) -> tuple[int | None, str]:
    """One of the plugin's version numbers; or None, and what was raised."""
    try:
        return int(getattr(versions, name)()), ""
    except Exception as error:
        return None, in_words(error)


def look(say: Callable[[ProbeLine], None]) -> None:
    """Import jax and list its devices."""
    collector = Collector()
    logging.getLogger("jax").addHandler(collector)
    start = time.perf_counter()
    say(ProbeLine(stage="import"))
    import jax

    in_force = settings(jax)
    say(ProbeLine(stage="devices"))
    if not jax.devices():
        raise RuntimeError("jax.devices() is empty")
    backend = backend_of(jax, time.perf_counter() - start, collector.messages)
    say(ProbeLine(backend=backend, settings=in_force))


def backend_of(jax: Any, start_s: float, warnings: Sequence[str]) -> Backend:
    """What jax computes on. `start_s`: the seconds that its start took."""
    return Backend(
        platform=jax.default_backend(),
        devices=devices(jax),
        start_s=start_s,
        warnings=tuple(warnings),
        libraries=gpu_libraries(),
    )


if __name__ == "__main__":
    main()
