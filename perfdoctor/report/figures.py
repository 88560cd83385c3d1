"""The parts of the Report that pictures are drawn from."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from perfdoctor.answers import place
from perfdoctor.schema.figures import (
    LayerShare,
    MemoryCurve,
    SourceLines,
    Sweep,
    SweepPoint,
    TriedFix,
)
from perfdoctor.schema.fix import Change, Gain, Tried
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Layer
from perfdoctor.schema.report import Finding

MOST_LAYERS = 20
"""Layers that are shown at most, the costliest ones."""
NEARLY = 0.05
"""A setting that gives less than so much less than the best is as good."""
BATCH = "training.batch_size"
"""The key of a workload's batch size, in a change."""
THREADS = {
    "data.threads": "loader threads",
    "data.workers": "loader processes",
    "NPROC": "threads of XLA",
    "OMP_NUM_THREADS": "threads of OpenMP",
}
"""Fields of a workload and environment variables that say how many threads there are."""

Shown = Sequence[tuple[Tried, Gain | None]]
"""What was tried, each with the gain that it showed, if it could be run."""


def tried(shown: Shown) -> tuple[TriedFix, ...]:
    """Every trial."""
    return tuple(
        TriedFix(
            check=each.check,
            how=each.fix.how,
            gain=gain,
            failure=each.failure,
            after=each.after,
        )
        for each, gain in shown
    )


def memory(observation: Observation) -> MemoryCurve | None:
    """The memory over the traced window, if it was looked at more than once."""
    seen = observation.memory
    if seen is None or len(seen.samples) < 2:
        return None
    return MemoryCurve(samples=seen.samples, available_bytes=seen.available_bytes)


def layers(observation: Observation) -> tuple[LayerShare, ...]:
    """The layers by their floating-point operations in the forward pass."""
    program = observation.program
    if program is None:
        return ()
    whole = sum(layer.flops for layer in program.layers)
    return tuple(
        LayerShare(
            name=name_of(layer),
            function=layer.function,
            place=place(layer.file, layer.line),
            share=layer.flops / whole,
            flops=layer.flops,
        )
        for layer in program.layers[:MOST_LAYERS]
        if layer.flops > 0
    )


def name_of(layer: Layer) -> str:
    """convolution 3×3, 32 to 64."""
    kernel = "×".join(map(str, layer.kernel))
    times = f", {layer.executed} times" if layer.executed > 1 else ""
    return f"{layer.kind} {kernel}{', ' * bool(kernel)}{layer.inputs} to {layer.outputs}{times}"


def sweeps(observation: Observation, shown: Shown) -> tuple[Sweep, ...]:
    """The batch size against the throughput, and numbers of threads, where several were tried."""
    steps = observation.steps
    if steps is None or steps.samples_per_s is None:
        return ()
    now = settings_now(observation)
    found = []
    for name, of in [(BATCH, "batch size"), *((name, "threads") for name in THREADS)]:
        if name in now:
            here = point(now[name], steps.samples_per_s, None)
            points = (here, *points_of(name, steps.samples_per_s, shown))
            label = THREADS.get(name, of)
            found.append(Sweep(of=of, name=label, points=with_best(points)))  # type: ignore[arg-type]
    return tuple(sweep for sweep in found if len(sweep.points) > 1)


def settings_now(observation: Observation) -> dict[str, int]:
    """What the run had, of all that is varied."""
    steps, workload = observation.steps, observation.target.workload
    cores = max(1, int(observation.host.usable_cores))
    values = {name: observation.environment.get(name, str(cores)) for name in list(THREADS)[2:]}
    found = {name: int(value) for name, value in values.items() if value.isdigit()}
    if steps is not None and steps.batch_size is not None:
        found[BATCH] = steps.batch_size
    if workload is not None:
        found |= {"data.threads": workload.data.threads, "data.workers": workload.data.workers}
    return found


def points_of(name: str, samples_per_s: float, shown: Shown) -> Iterable[SweepPoint]:
    """The settings that were tried by themselves, and ran."""
    for each, gain in shown:
        value = setting_of(name, each.fix.change)
        if value is not None and gain is not None and each.check and not each.after:
            yield point(value, samples_per_s, gain)


def setting_of(name: str, change: Change | None) -> int | None:
    """What a change sets a field or a variable to; None if it leaves it or is no number."""
    if change is None:
        return None
    if name == BATCH and (program := str(change.step.get("program", ""))).startswith("batch-"):
        return int(program.rpartition("-")[2])
    values: Mapping[str, object] = {**change.workload, **change.env}
    value = str(values.get(name))
    return int(value) if value.isdigit() else None


def point(setting: int, samples_per_s: float, gain: Gain | None) -> SweepPoint:
    """The throughput that a gain means; the one that was observed without."""
    of = gain or Gain(speedup=1.0, low=1.0, high=1.0, basis="measured")
    return SweepPoint(
        setting=setting,
        samples_per_s=samples_per_s * of.speedup,
        low=samples_per_s * of.low,
        high=samples_per_s * of.high,
        is_observed=gain is None,
    )


def with_best(points: Iterable[SweepPoint]) -> tuple[SweepPoint, ...]:
    """The points in the order of the settings, each once; the knee marked. What is tried with the
    setting that was observed differs from it in something else.
    """
    best_of: dict[int, SweepPoint] = {}
    for each in points:
        known = best_of.get(each.setting)
        if known is None or (not known.is_observed and each.samples_per_s > known.samples_per_s):
            best_of[each.setting] = each
    ordered = [best_of[setting] for setting in sorted(best_of)]
    most = max(each.samples_per_s for each in ordered)
    knee = next(each for each in ordered if each.samples_per_s * (1 + NEARLY) >= most)
    return tuple(replace(each, is_best=each is knee) for each in ordered)


def sources(observation: Observation, findings: Sequence[Finding]) -> tuple[SourceLines, ...]:
    """Those of the kept lines of source code that a finding names."""
    named = [
        text for finding in findings for text in (finding.summary, *places_of(finding)) if text
    ]
    return tuple(each for each in observation.sources if any(each.place in text for text in named))


def places_of(finding: Finding) -> Iterable[str]:
    """The places that a finding's evidence is from."""
    return (fact.source for fact in finding.evidence)
