"""The words that a check answers with."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.fix import MIN_GAIN, Fix, Gain
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Evidence, Outcome
from perfdoctor.schema.steps import Steps

Part = TypeVar("Part")
PLAIN = re.compile(r"[\w.:=]+")
"""A value that a shell takes as it is, without quotes."""
SIZES = ((2.0**20, "MiB"), (2.0**10, "KiB"))
"""Units of memory, the largest first, each with its bytes."""
MOST = 0.98
"""The largest share of a step that an estimated gain may save: an estimate is never so good that
nothing of the step is left."""


def needed(part: Part | None) -> Part:
    """A part of the Observation that the check's NEEDS promise to be there."""
    if part is None:
        raise NothingMeasured("a part that the check does not name in NEEDS is missing")
    return part


def traced(steps: Steps | None) -> Steps:
    """The steps, of which a window was traced.

    Raises:
        NothingMeasured: the run ended before, or its trace was not read.
    """
    known = needed(steps)
    if not known.is_traced:
        raise NothingMeasured(known.why_untraced)
    return known


def ok(summary: str, *evidence: Evidence) -> Outcome:
    """Looked at, and well."""
    return Outcome(kind="ok", summary=summary, evidence=evidence)


def issue(
    summary: str,
    evidence: Sequence[Evidence],
    fixes: Sequence[Fix],
    gain: Gain | None = None,
    *,
    sweep: bool = False,
) -> Outcome:
    """A loss that was seen; whether it is worth reporting is decided by its measured gain."""
    return Outcome(
        kind="issue",
        summary=summary,
        evidence=tuple(evidence),
        fixes=tuple(fixes),
        gain=gain,
        sweep=sweep,
    )


def hint(
    summary: str,
    evidence: Sequence[Evidence] = (),
    fixes: Sequence[Fix] = (),
    gain: Gain | None = None,
    *,
    sweep: bool = False,
) -> Outcome:
    """A risk that was not seen to cost anything here; becomes an issue if a trial shows a gain."""
    outcome = issue(summary, evidence, fixes, gain, sweep=sweep)
    return structs.replace(outcome, kind="hint")


def not_applicable(why: str) -> Outcome:
    """There is nothing here that the check could look at."""
    return Outcome(kind="not-applicable", summary=why)


def not_measured(why: str) -> Outcome:
    """Something to look at, but it could not be seen."""
    return Outcome(kind="not-measured", summary=why)


def estimated(speedup: float, low: float, high: float) -> Gain:
    """A gain read from the timeline, not tried; `low` and `high` bound it."""
    return Gain(speedup=speedup, low=low, high=high, basis="estimated")


def spared(whole_ms: float, likely_ms: float, least_ms: float, most_ms: float) -> Gain:
    """The estimated gain if a step of `whole_ms` took so much less: likely, at least, at most."""
    if whole_ms <= 0:
        return estimated(1.0, 1.0, 1.0)
    least_ms = min(least_ms, likely_ms)
    likely, least, most = (
        1 / (1 - min(MOST, max(0.0, each_ms) / whole_ms))
        for each_ms in (likely_ms, least_ms, max(likely_ms, most_ms))
    )
    return estimated(likely, least, most)


def of_host_work(observation: Observation, gain: Gain) -> Gain:
    """The estimated gain of a fix that spares work of the host, with what the step takes alone.

    Such a fix leaves the step as it is. So it gains what the step takes in the run over what it
    takes alone, if this work is all that the host loses, and never more, as far as the replay is
    like the run, which it is not where that is less than is sure. The timeline tells of this work
    by itself, but not of what else goes with it: if that is less, the gain lies between the two, in
    their geometric middle. That the work is a loss at all is still told by the timeline's low end.
    How much better that is than the timeline: `python -m tests.benchmarks.host_estimates`.
    """
    alone, eager = observation.alone, observation.eager
    error = alone.emulation_error if alone is not None else None
    if alone is None or error is None or (eager is not None and eager.is_step):
        return gain  # of a step that is not jitted, it was replayed as one program
    most = alone.host_gain
    if most < gain.low or not gain.is_worth(MIN_GAIN):
        return gain  # the replay was slower than the run; or only a trial makes it a finding
    likely = math.sqrt(min(gain.speedup, most) * most)
    return estimated(likely, gain.low, most * math.exp(abs(error)))


def on_cpu(observation: Observation) -> bool:
    """Whether the training is known to compute on the CPU, whose cores the host's work shares."""
    return observation.backend is not None and observation.backend.platform == "cpu"


def on_accelerator(observation: Observation) -> bool:
    """Whether the training is known to compute on something else than the CPU."""
    return observation.backend is not None and observation.backend.platform != "cpu"


def shorten(file: str) -> str:
    """A file's name with its folder, enough to find it."""
    return "/".join(Path(file).parts[-2:])


def place(file: str, line: int) -> str:
    """file:line."""
    return f"{shorten(file)}:{line}"


def unit_of(value: float) -> tuple[float, str]:
    """The unit in which a reader sees so many bytes, and how many bytes it has."""
    return next((size for size in SIZES if value >= size[0]), (1.0, "bytes"))


def sized(count: float) -> str:
    """A number of bytes in words: 1,412 MiB, 3.5 KiB, 4 bytes."""
    size, unit = unit_of(count)
    return f"{count / size:,.0f} {unit}" if count >= 1000 * size else f"{count / size:.3g} {unit}"


def set_variables(observation: Observation, change: Mapping[str, str | None]) -> str:
    """The line that sets environment variables, or removes them (None); for those that the program
    sets itself, what to change in its code.
    """
    own = [name for name in change if name in observation.set_in_code]
    others = {name: value for name, value in change.items() if name not in own}
    removed = [name for name, value in others.items() if value is None]
    made = [f"{name}={quoted(value)}" for name, value in others.items() if value is not None]
    parts = [f"unset {' '.join(removed)}"] if removed else []
    parts += [f"export {' '.join(made)}"] if made else []
    return "; ".join([*parts, *(f"in the code: {in_code(name, change[name])}" for name in own)])


def in_code(name: str, value: str | None) -> str:
    """The line of Python."""
    variable = f'os.environ["{name}"]'
    return f"remove {variable}" if value is None else f'{variable} = "{value}"'


def quoted(value: str) -> str:
    """A value, quoted for a shell where that is needed."""
    return value if PLAIN.fullmatch(value) else f'"{value}"'
