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
    estimated,
    issue,
    needed,
    not_applicable,
    not_measured,
    ok,
    place,
)

ID = "missing-jit"
NEEDS = ("compiles",)
AGAIN, GOES_ON_S = 8, 5.0
"""Compilations of JAX's own control flow, and the time over which they lie where no steps were
told, from which on it is compiled in each step: as the observer takes a function for one that is
compiled again and again."""
MANY = 9
"""Dispatches a step: one to eight jitted functions are a style (accumulation, actor and critic)."""
LEAST_SHARE = 0.03
"""Of the step, in which the device waits for the dispatching: below, what else lies between the
calls is work that jit would not save. 0.01 in flax's PPO, whose games are played there; all ill
scripts of tests/clinic are told by what is not fused, before this is asked."""
FEWEST_MS = 1e-9
WHOLE = 0.05
"""Of the bytes that a step moves: a function that is no single operation and does so much of the
work is a jitted whole, however often it is called (the policy of an actor, 74 times a step)."""
DISPATCHED = 0.99
"""Of what is lost between calls; what remains is the dispatch of one function: of six scripts of
tests/clinic 1.5 % of it in nnx_vision, next to nothing in the others."""
LEAST_UNFUSED, FUSED = 0.1, 0.9
"""Of the bytes; of the time of single operations what a fused program saves, where only their bytes
are known."""
LIGHT, HEAVY = 0.95, 0.5
"""The same where their time is known: of elementwise operations, which fuse into their neighbours;
and of products, which then need no fresh memory. The latter was chosen by haiku_vae of tests/clinic
(about a half); small products, as in gan, gain more."""
OFTEN = 0.5
"""Of the steps: if fewer end in a wait, a jitted step hides the loading behind it."""
NAMES = """
abs add argmax argmin argsort bernoulli bitwise_and broadcast_in_dim broadcast_to cholesky clip
concatenate conv_general_dilated convert_element_type copy cos cross cumprod cumsum diag divide dot
dot_general dynamic_slice dynamic_update_slice einsum equal erf exp expand_dims expm1 fft flip floor
floor_divide gather gelu greater greater_equal gumbel imag inner integer_pow less less_equal log
log1p log_softmax logistic logsumexp matmul max maximum mean min minimum mod moveaxis mul multiply
neg negative norm normal not_equal one_hot outer pad pow power prod real reduce_max reduce_min
reduce_sum reduce_window_sum relu remainder repeat reshape roll round rsqrt scatter scatter_add
select_n sigmoid sign silu sin sinh softmax softplus solve sort split sqrt square squeeze stack std
sub subtract sum swapaxes take take_along_axis tanh tensordot tile top_k trace transpose
tree_bias_correction triangular_solve true_divide uniform unstack var vdot where
"""
OPERATIONS = frozenset(NAMES.split())
"""Functions of JAX that, called outside of `jit`, are programs of their own: those that do work."""
PRODUCTS = frozenset(
    ("conv_general_dilated", "dot", "dot_general", "einsum", "inner", "matmul", "tensordot", "vdot")
)
"""Those that are work of their own in a fused program too."""


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
    if loose(steps) * steps.dispatches < MANY:
        return ok(calls, *evidence)
    if unfused(steps) >= LEAST_UNFUSED:
        return not_fused(observation, steps, evidence)
    if dispatching_ms(steps) < LEAST_SHARE * steps.time_ms:
        return ok(f"{calls}, whose dispatch the device hardly waits for", *evidence)
    share = lost_ms(steps) / max(steps.time_ms, FEWEST_MS)
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
    if count < AGAIN:
        return []
    if steps is not None:
        begin_s, end_s = steps.began_s, steps.began_s + steps.window_s
        inside = [each for each in again if begin_s <= each.at_s <= end_s]
        return inside if len(inside) > 1 else []
    goes_on = again[-1].at_s - again[0].at_s >= GOES_ON_S and again[-1] in compiles[-AGAIN:]
    return again[len(again) // 2 :] if goes_on else []


def compiles_its_loops(observation: Observation, again: Sequence[Compile]) -> Outcome:
    """What they take is lost; what the operations around them lose besides is not known."""
    span_s = max(again[-1].at_s - again[0].at_s, FEWEST_MS)
    share = min(0.98, sum(each.seconds for each in again[1:]) / span_s)
    evidence = Evidence(
        name=f"compilations of {again[0].function}",
        value=len(again),
        unit=f"in {span_s:.1f} s",
        source="jax.monitoring",
    )
    summary = (
        f"{again[0].function} was compiled {len(again)} times in {span_s:.1f} s: outside of a "
        "jitted function each call compiles it, and all around it runs operation by operation"
    )
    gain = estimated(1 / (1 - share), 1 / (1 - share / 2), 2 / (1 - share))
    return issue(summary, [evidence], [fix(observation)], gain)


def unfused(steps: Steps) -> float:
    """Of the device's work, the share of single operations: XLA could not fuse them. By their time
    where it is told, else by the bytes that they move.
    """
    single = {name for name in steps.work | steps.work_ms if is_operation(name)}
    if not steps.work_ms:
        return sum(steps.work.get(name, 0.0) for name in single)
    single_ms = sum(steps.work_ms.get(name, 0.0) for name in single)
    return single_ms / max(steps.device_busy_ms, FEWEST_MS)


def not_fused(observation: Observation, steps: Steps, evidence: list[Evidence]) -> Outcome:
    """Whether the device is busy or not: each operation reads and writes all its arrays."""
    share, source = unfused(steps), "trace" if steps.work_ms else "XLA's bytes"
    told = Evidence(
        name="single operations", value=round(share, 2), unit="of the device's work", source=source
    )
    summary = (
        f"{steps.dispatches:.0f} dispatches a step: it is not jitted as a whole, and {share:.0%} "
        f"of the device's work are single operations that XLA can't fuse{where(steps)}"
    )
    fused_ms = saved_by_fusion_ms(steps)
    left_ms = max(0.0, steps.device_busy_ms - fused_ms)
    hidden_ms = min(left_ms, steps.exposed_etl_ms) if steps.synchronized < OFTEN else 0.0
    gain = estimated(
        without(steps, fused_ms + DISPATCHED * lost_ms(steps) + hidden_ms),
        without(steps, (fused_ms + lost_ms(steps)) / 2),
        without(steps, share * steps.device_busy_ms + lost_ms(steps) + hidden_ms),
    )
    return issue(summary, [*evidence, told], [fix(observation)], gain)


def saved_by_fusion_ms(steps: Steps) -> float:
    """Of the device's work, what a step that is one program does not need."""
    if not steps.work_ms:
        return FUSED * unfused(steps) * steps.device_busy_ms
    return sum(
        each_ms * (HEAVY if name.removeprefix("_") in PRODUCTS else LIGHT)
        for name, each_ms in steps.work_ms.items()
        if is_operation(name)
    )


def without(steps: Steps, saved_ms: float) -> float:
    """The speedup if a step took so much less."""
    whole_ms = max(steps.time_ms, FEWEST_MS)
    return 1 / (1 - min(0.98, saved_ms / whole_ms))


def loose(steps: Steps) -> float:
    """Of the calls, the share that are no jitted wholes."""
    whole = sum(calls for name, calls in steps.calls.items() if is_whole(name, steps))
    return max(0.0, 1 - whole / max(1.0, steps.dispatches))


def is_operation(name: str) -> bool:
    """Whether it is a function of JAX's, or what one is made of."""
    return name.removeprefix("_") in OPERATIONS


def is_whole(name: str, steps: Steps) -> bool:
    """Whether a jitted function does a good part of the step's work at once."""
    return not is_operation(name) and steps.work.get(name, 0.0) >= WHOLE


def dispatching_ms(steps: Steps) -> float:
    """In these calls while the device idles."""
    return loose(steps) * max(0.0, steps.exposed_dispatch_ms)


def lost_ms(steps: Steps) -> float:
    """In and between them while the device idles."""
    return dispatching_ms(steps) + loose(steps) * max(0.0, steps.exposed_other_ms)


def jitted(steps: Steps) -> Gain:
    """Without the dispatching, and most of the Python between; fusion comes on top."""
    whole_ms = max(steps.time_ms, FEWEST_MS)
    lost = min(0.99, lost_ms(steps) / whole_ms)
    dispatching = min(lost, dispatching_ms(steps) / whole_ms)
    return estimated(
        speedup=1 / (1 - lost * DISPATCHED),
        low=1 / (1 - dispatching * 0.75),
        high=2 / (1 - lost),
    )


def where(steps: Steps) -> str:
    """The line that is seen most between the calls."""
    if not steps.other_places:
        return ""
    first = steps.other_places[0]
    return f", most in {first.function}() ({place(first.file, first.line)})"


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    return [
        Evidence(
            name="dispatches", value=round(steps.dispatches, 1), unit="a step", source="trace"
        ),
        Evidence(
            name="dispatch, device idle",
            value=steps.exposed_dispatch_ms,
            unit="ms/step",
            source="trace",
        ),
        Evidence(
            name="Python, device idle", value=steps.exposed_other_ms, unit="ms/step", source="trace"
        ),
        Evidence(name="device busy", value=steps.device_busy_ms, unit="ms/step", source="trace"),
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
