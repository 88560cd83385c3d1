"""Single operations of a step: what is called outside of `jax.jit`, and what fusing them saves."""

from collections import Counter
from collections.abc import Sequence

from perfdoctor import Change, Compile, Eager, Observation, Scalar, Steps, place
from perfdoctor_checks._limits import FUSED, GOES_ON_S, HANDFUL, LEAST_SHARE, MOSTLY, SLIGHT

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
STAGED = "stage"
"""What `jnp.array` and `jnp.asarray` call of a host array, from jax 0.10 on: a copy, no work."""


def unfused(steps: Steps) -> float:
    """The share of the device's work that single operations do: XLA could not fuse them. By their
    time where it is told, else by the bytes that they move.
    """
    single = {name for name in steps.work | steps.work_ms if is_operation(name)}
    if not steps.work_ms:
        return sum(steps.work.get(name, 0.0) for name in single)
    single_ms = sum(steps.work_ms.get(name, 0.0) for name in single)
    return single_ms / steps.device_busy_ms if steps.device_busy_ms > 0 else 0.0


def saved_by_fusion_ms(steps: Steps) -> float:
    """The part of the device's work, in ms a step, that a step which is one program does not need:
    elementwise operations fuse into their neighbours, and products spare half of their time, which
    is for fresh memory.
    """
    if not steps.work_ms:
        return FUSED * unfused(steps) * steps.device_busy_ms
    return sum(
        each_ms * (1 / 2 if name.removeprefix("_") in PRODUCTS else FUSED)
        for name, each_ms in steps.work_ms.items()
        if is_operation(name)
    )


def as_a_whole(observation: Observation) -> Change:
    """The function that dispatches its operations as one program, beside what others compute. Where
    none was saved, but the jitted function that they surround was: that one without all that the
    host does around it but loading, which is a bound. It says nothing of what the device computes
    in these operations, which has to be little then.
    """
    steps, eager = observation.steps, observation.eager
    is_saved = eager is not None and eager.is_saved
    is_captured = observation.calls is not None and observation.target.parts is None
    if is_captured and not is_saved and steps is not None and unfused(steps) < SLIGHT:
        return Change(step={"handling": 0}, is_bound=True)
    others = share_of_others(observation)
    step: dict[str, Scalar] = {"jitted": "whole"}
    if others >= LEAST_SHARE:
        step["others"] = round(others, 3)
    return Change(step=step)


def share_of_others(observation: Observation) -> float:
    """The share of a step that the device computes in jitted functions which are called outside of
    the one that dispatches its operations: they are left to compute when that is jitted.
    """
    steps, eager = observation.steps, observation.eager
    if steps is None or eager is None or not eager.is_saved or steps.time_ms <= 0:
        return 0.0
    taken_ms = steps.work_ms or {n: w * steps.device_busy_ms for n, w in steps.work.items()}
    names = [n for n in taken_ms if not is_operation(n) and n not in eager.holds]
    return min(1.0, sum(taken_ms[name] for name in names) / steps.time_ms)


def where(steps: Steps) -> str:
    """The line that is seen most between the calls."""
    shown = [f"{each.function}() ({place(each.file, each.line)})" for each in steps.other_places]
    return f", most in {shown[0]}" if shown else ""


def loose(steps: Steps) -> float:
    """The share of the calls that are not calls of whole jitted functions, nor copies."""
    whole = sum(calls for name, calls in steps.calls.items() if is_whole(name, steps))
    return max(0.0, 1 - (whole + staged(steps)) / max(1.0, steps.dispatches))


def staged(steps: Steps) -> float:
    """Host arrays that are put on the device one by one, a step; a function of the user's that has
    this name does work.
    """
    return 0.0 if is_whole(STAGED, steps) else steps.calls.get(STAGED, 0.0)


def reads_one_by_one(steps: Steps, eager: Eager | None) -> bool:
    """Whether its single operations are made to read results one by one, as a loop over the
    elements of an array does: it waits after every second of them, or more often. What is computed
    already is read without a wait: then the main thread is seen to spend most of its time so.
    """
    single = sum(calls for name, calls in steps.calls.items() if is_operation(name))
    is_seen = eager is not None and eager.reads_one_by_one
    return single > HANDFUL and (is_seen or steps.waits >= MOSTLY * single)


def asks_in_between(steps: Steps) -> bool:
    """Whether it waits after most calls of a function that a step calls many times, as for the
    actions of a policy.
    """
    most = max(
        (count for name, count in steps.calls.items() if not is_operation(name)), default=0.0
    )
    return most > HANDFUL and steps.waits >= MOSTLY * most


def dispatching_ms(steps: Steps) -> float:
    """Milliseconds of a step in these calls and jax's Python around them, the device idle."""
    exposed_ms = max(0.0, steps.exposed_dispatch_ms) + max(0.0, steps.exposed_operations_ms)
    return loose(steps) * exposed_ms


def lost_between_ms(steps: Steps) -> float:
    """Milliseconds of a step in and between single calls while the device idles."""
    exposed_ms = max(0.0, steps.exposed_dispatch_ms) + max(0.0, steps.exposed_other_ms)
    return loose(steps) * exposed_ms


def is_operation(name: str) -> bool:
    """Whether it is a function of JAX's, or what one is made of."""
    return name.removeprefix("_") in OPERATIONS


def is_whole(name: str, steps: Steps) -> bool:
    """Whether a jitted function does a good part of the step's work at once."""
    return not is_operation(name) and steps.work.get(name, 0.0) >= SLIGHT


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
