"""The step is dispatched operation by operation.

What it finds
-------------
A training step, or a part of it, that runs without `jax.jit`: many small dispatches a step, and a
device that idles between them.

Why it costs
------------
Each operation passes through Python and is launched by itself, in 20 to 100 µs, and XLA can't fuse
it with its neighbours. Small steps lose 5 to 170 times, large matrix products about twice; flax's
own VAE example gains 13 times from one `@jax.jit`.

How it is measured
------------------
The trace counts the jitted functions that the main thread calls a step (an operation outside `jit`
is one), and the time in which it is in or between these calls while the device idles. A step of a
few jitted functions is a style, not a fault, and so are many calls of one that does a good part of
the work, as an actor's policy; where the device hardly waits for the calls, nothing is lost.

JAX's own control flow (`jax.lax.scan`, `while_loop`, `cond`) is compiled at each call outside of
`jit` whose body is made anew. Where that goes on while the program trains, the compilations are
what is measured; a set-up that does so has ended before.

How to fix
----------
Put `@jax.jit` on the whole step: loss, gradients and the optimiser's update. With equinox
`@eqx.filter_jit`, with flax `@nnx.jit`.

References
----------
JAX, "Just-in-time compilation"; "Gradient transformations and the training step" in optax's guide.
"""

from collections import Counter
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
    issue,
    needed,
    not_applicable,
    not_measured,
    ok,
    place,
    spared,
)
from perfdoctor_checks._limits import GOES_ON_S, HANDFUL, LEAST_SHARE, MOSTLY, SLIGHT
from perfdoctor_checks._operations import loose, saved_by_fusion_ms, unfused

ID = "missing-jit"
NEEDS = ("compiles",)


def check(observation: Observation) -> Outcome:
    """Reads how many dispatches a step the device waits for; without steps, what is compiled in
    each of them.
    """
    if any(each.name == "jax_disable_jit" and each.value for each in observation.settings or ()):
        return not_applicable("jax_disable_jit is on, so nothing is jitted: see debug-flags")
    again = compiled_again(needed(observation.compiles), observation.steps)
    if again:
        return compiles_its_loops(observation, again)
    if observation.steps is None:
        return not_measured(observation.not_measured.get("steps", "no steps were seen"))
    steps = observation.steps
    evidence = facts(steps)
    calls = f"{steps.dispatches:.3g} jitted call{'s' * (round(steps.dispatches) != 1)} a step"
    if loose(steps) * steps.dispatches <= HANDFUL:
        return ok(calls, *evidence)
    if unfused(steps) >= SLIGHT:
        return not_fused(observation, steps, evidence)
    if dispatching_ms(steps) < LEAST_SHARE * steps.time_ms:
        return ok(f"{calls}, whose dispatch the device hardly waits for", *evidence)
    share = lost_ms(steps) / steps.time_ms if steps.time_ms > 0 else 0.0
    summary = (
        f"{steps.dispatches:.0f} dispatches a step: it is not jitted as a whole, and the device "
        f"idles {min(1.0, share):.0%} of the time between them{where(steps)}"
    )
    return issue(summary, evidence, [fix(observation)], jitted(steps))


def compiled_again(compiles: Sequence[Compile], steps: Steps | None) -> list[Compile]:
    """The compilations of control flow that go on: those in the window, or without one, those that
    are among the last of a run that has made them for long.
    """
    counts = Counter(each.function for each in compiles if each.is_control_flow)
    worst, count = max(counts.items(), key=lambda each: each[1], default=("", 0))
    again = [each for each in compiles if each.function == worst]
    if count < HANDFUL:
        return []
    if steps is not None:
        begin_s, end_s = steps.began_s, steps.began_s + steps.window_s
        inside = [each for each in again if begin_s <= each.at_s <= end_s]
        return inside if len(inside) > 1 else []
    goes_on = again[-1].at_s - again[0].at_s >= GOES_ON_S and again[-1] in compiles[-HANDFUL:]
    return again[len(again) // 2 :] if goes_on else []


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
        fused_ms + lost_ms(steps) + hidden_ms,
        (fused_ms + lost_ms(steps)) / 2,
        share * steps.device_busy_ms + lost_ms(steps) + hidden_ms,
    )
    return issue(summary, [*evidence, told], [fix(observation)], gain)


def dispatching_ms(steps: Steps) -> float:
    """In these calls while the device idles."""
    return loose(steps) * max(0.0, steps.exposed_dispatch_ms)


def lost_ms(steps: Steps) -> float:
    """In and between them while the device idles."""
    return dispatching_ms(steps) + loose(steps) * max(0.0, steps.exposed_other_ms)


def jitted(steps: Steps) -> Gain:
    """Without the dispatching, and most of the Python between; fusion comes on top."""
    most_ms = (steps.time_ms + lost_ms(steps)) / 2
    return spared(steps.time_ms, lost_ms(steps), dispatching_ms(steps) / 2, most_ms)


def where(steps: Steps) -> str:
    """The line that is seen most between the calls."""
    if not steps.other_places:
        return ""
    first = steps.other_places[0]
    return f", most in {first.function}() ({place(first.file, first.line)})"


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    return [
        Evidence("dispatches", round(steps.dispatches, 1), "a step", "trace"),
        Evidence("dispatch, device idle", steps.exposed_dispatch_ms, "ms/step", "trace"),
        Evidence("Python, device idle", steps.exposed_other_ms, "ms/step", "trace"),
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
    return Fix(
        summary="jit the whole step: loss, gradients and update in one function",
        how="@jax.jit  # above `def step(state, batch):`; equinox: @eqx.filter_jit, flax: @nnx.jit",
        changes_results="numerics",
    )
