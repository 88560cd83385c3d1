"""Work of a step outside of jax.jit: what it costs, and how it is jitted."""

from collections.abc import Sequence

from perfdoctor import (
    Change,
    Compile,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Steps,
    hint,
    issue,
    needed,
    ok,
    place,
    spared,
)
from perfdoctor_checks._limits import MOSTLY
from perfdoctor_checks._operations import (
    as_a_whole,
    dispatching_ms,
    lost_between_ms,
    saved_by_fusion_ms,
    unfused,
    where,
)


def by_operations(observation: Observation) -> Outcome:
    """A function that was seen to dispatch its operations; jitting it is to be tried. If it could
    not be saved, and takes most of the time, half of that is lost, as with large products.
    """
    eager = needed(observation.eager)
    if eager.reads_one_by_one:
        return ok("it mostly reads arrays element by element: see host-sync")
    text = (
        f"{eager.function}() ({place(eager.file, eager.line)}) is not jitted: it runs operation by "
        f"operation, {eager.call_ms:.1f} ms a call, {eager.share:.0%} of the main thread's time"
    )
    share = Evidence(f"main thread in {eager.function}", round(eager.share, 3), "share", "stacks")
    evidence = [share, Evidence("a call of it", round(eager.call_ms, 2), "ms", "stacks")]
    if eager.is_saved or eager.share < MOSTLY:
        return hint(text, evidence, [fix(observation)])
    gain = spared(1.0, eager.share / 2, eager.share / 4, eager.share)
    return issue(f"{text}; it was not tried: {eager.why_not}", evidence, [fix(observation)], gain)


def compiles_its_loops(observation: Observation, again: Sequence[Compile]) -> Outcome:
    """What they take is lost; what the operations around them lose besides is not known."""
    lost_s = sum(each.seconds for each in again[1:])
    span_s = max(again[-1].at_s - again[0].at_s, lost_s)
    evidence = Evidence(
        f"compilations of {again[0].function}", len(again), f"in {span_s:.1f} s", "jax.monitoring"
    )
    summary = (
        f"{again[0].function} was compiled {len(again)} times in {span_s:.1f} s: outside of a "
        "jitted function each call compiles it, and all around it runs operation by operation"
    )
    gain = spared(span_s, lost_s, lost_s / 2, span_s)
    return issue(summary, [evidence], [fix(observation)], gain)


def not_fused(observation: Observation, steps: Steps, evidence: list[Evidence]) -> Outcome:
    """Whether the device is busy or not: each operation reads and writes all its arrays."""
    share, source = unfused(steps), "trace" if steps.work_ms else "XLA's bytes"
    told = Evidence("single operations", round(share, 2), "of the device's work", source)
    summary = (
        f"{steps.dispatches:.0f} dispatches a step: it is not jitted as a whole, and {share:.0%} "
        f"of the device's work are single operations that XLA can't fuse{where(steps)}"
    )
    fused_ms = saved_by_fusion_ms(steps)
    left_ms = max(0.0, steps.device_busy_ms - fused_ms)
    hidden_ms = min(left_ms, steps.exposed_etl_ms) if steps.synchronized < MOSTLY else 0.0
    gain = spared(
        steps.time_ms,
        fused_ms + lost_between_ms(steps) + hidden_ms,
        (fused_ms + lost_between_ms(steps)) / 2,
        share * steps.device_busy_ms + lost_between_ms(steps) + hidden_ms,
    )
    return issue(summary, [*evidence, told], [fix(observation)], gain)


def jitted(steps: Steps) -> Gain:
    """The gain without the dispatching, and most of the Python between; fusion comes on top."""
    most_ms = (steps.time_ms + lost_between_ms(steps)) / 2
    return spared(steps.time_ms, lost_between_ms(steps), dispatching_ms(steps) / 2, most_ms)


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    return [
        Evidence("dispatches", round(steps.dispatches, 1), "a step", "trace"),
        Evidence("dispatch, device idle", steps.exposed_dispatch_ms, "ms/step", "trace"),
        Evidence("Python, device idle", steps.exposed_other_ms, "ms/step", "trace"),
        Evidence("of that in jax", steps.exposed_operations_ms, "ms/step", "stacks"),
        Evidence("device busy", steps.device_busy_ms, "ms/step", "trace"),
    ]


def fix(observation: Observation) -> Fix:
    """jit the whole step."""
    workload = observation.target.workload
    if workload is not None and not workload.training.jit:
        return Fix(
            summary="jit the step",
            how="[training] jit = true",
            change=Change(workload={"training.jit": True}),
            changes_results="numerics",
        )
    eager = observation.eager
    name = eager.function.rpartition(".")[2] if eager is not None else "step"
    where = f" ({place(eager.file, eager.line)})" if eager is not None else ""
    return Fix(
        summary="jit the whole step: loss, gradients and update in one function",
        how=f"@jax.jit  # above `def {name}(…)`{where}; equinox: @eqx.filter_jit, flax: @nnx.jit",
        change=as_a_whole(observation) if workload is None else None,
        changes_results="numerics",
    )
