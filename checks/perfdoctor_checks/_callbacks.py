"""Host callbacks and operations pinned to the CPU: what they take, and what replaces them."""

from perfdoctor import (
    Callback,
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Program,
    Steps,
    needed,
    on_accelerator,
    place,
    spared,
)

UNCALLED = Change(step={"program": "no-callbacks"})
"""The step without its callbacks, as a replay makes it."""


def summary_of(program: Program, steps: Steps) -> str:
    """Which callback, where, how often, how long."""
    text = "a callback"
    if program.callbacks:
        first = program.callbacks[0]
        more = len(program.callbacks) - 1
        text = f"{first.kind} in {first.function} ({place(first.file, first.line)})"
        text += f" and {more} more" if more else ""
    verb = "calls" if len(program.callbacks) <= 1 else "call"
    text = f"{text} {verb} back to Python"
    if steps.callbacks <= 0 or steps.callback_ms <= 0:
        return f"{text}; how long that takes is not in the trace"
    return f"{text} {steps.callbacks:.1f} times a step, {steps.callback_ms:.2f} ms in all"


def gain(steps: Steps) -> Gain:
    """The gain without the callbacks: half of their time at least, where the device computes
    meanwhile; and up to twice as much, for what fetching their arguments and Python's lock cost
    besides.
    """
    spent_ms = steps.callback_ms
    sure_ms = spent_ms / 2 - 2 * steps.standard_error_ms
    return spared(steps.time_ms, spent_ms, sure_ms, 2 * spent_ms)


def pinned(observation: Observation) -> Fix | None:
    """A setting that moves computations from the accelerator to the CPU."""
    if not on_accelerator(observation):
        return None
    for setting in observation.settings or ():
        if setting.name != "jax_default_device" or "cpu" not in str(setting.value).lower():
            continue
        if setting.origin == "environment":
            change = Change(env={"JAX_DEFAULT_DEVICE": None})
            return Fix(
                summary="compute on the accelerator",
                how="unset JAX_DEFAULT_DEVICE",
                change=change,
                changes_results="numerics",
            )
        return Fix(
            summary="compute on the accelerator",
            how='remove jax.config.update("jax_default_device", …)',
            changes_results="numerics",
        )
    return None


def facts(program: Program, steps: Steps) -> list[Evidence]:
    """How often, how long, and each callback's line."""
    traced = [
        Evidence("callbacks", steps.callbacks, "a step", "trace"),
        Evidence("in callbacks", steps.callback_ms, "ms/step", "trace"),
    ]
    return [
        *(traced if steps.is_traced else []),
        *(
            Evidence(each.kind, each.function, "", place(each.file, each.line))
            for each in program.callbacks[:5]
        ),
    ]


def fix(observation: Observation) -> Fix:
    """The fix: of a workload its choice; of a script what to write, by the callback's kind."""
    workload = observation.target.workload
    if workload is not None and workload.training.callback != "none":
        return Fix(
            summary="compute it inside the step, print nothing there",
            how='[training] callback = "none"',
            change=Change(workload={"training.callback": "none"}),
        )
    callbacks = needed(observation.program).callbacks
    return advice(callbacks[0] if callbacks else None)


def advice(callback: Callback | None) -> Fix:
    """What to write in place of a callback."""
    if callback is not None and callback.kind.startswith("pure"):
        return Fix(
            summary="compute it with jnp inside the step",
            how="replace jax.pure_callback(f, …) by the same in jnp, or call f outside the step",
            change=UNCALLED,
            changes_results="numerics",
        )
    if callback is not None and callback.kind.startswith("debug"):
        return Fix(
            summary="print it rarely",
            how="jax.lax.cond(step % 100 == 0, lambda: jax.debug.print(…), lambda: None)",
            change=UNCALLED,
        )
    return Fix(
        summary="return the value from the step, and save it outside",
        how="state, value = step(state, batch)  # every 100 steps: log(float(value))",
        change=UNCALLED,
    )
