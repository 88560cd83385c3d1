"""Single operations of a step: what is called outside of `jax.jit`, and what fusing them saves."""

from perfdoctor import Steps
from perfdoctor_checks._limits import FUSED, SLIGHT

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


def unfused(steps: Steps) -> float:
    """Of the device's work, the share of single operations: XLA could not fuse them. By their time
    where it is told, else by the bytes that they move.
    """
    single = {name for name in steps.work | steps.work_ms if is_operation(name)}
    if not steps.work_ms:
        return sum(steps.work.get(name, 0.0) for name in single)
    single_ms = sum(steps.work_ms.get(name, 0.0) for name in single)
    return single_ms / steps.device_busy_ms if steps.device_busy_ms > 0 else 0.0


def saved_by_fusion_ms(steps: Steps) -> float:
    """Of the device's work, what a step that is one program does not need: elementwise operations
    fuse into their neighbours, and of products half the time, which is for fresh memory.
    """
    if not steps.work_ms:
        return FUSED * unfused(steps) * steps.device_busy_ms
    return sum(
        each_ms * (1 / 2 if name.removeprefix("_") in PRODUCTS else FUSED)
        for name, each_ms in steps.work_ms.items()
        if is_operation(name)
    )


def loose(steps: Steps) -> float:
    """Of the calls, the share that are no jitted wholes."""
    whole = sum(calls for name, calls in steps.calls.items() if is_whole(name, steps))
    return max(0.0, 1 - whole / max(1.0, steps.dispatches))


def is_operation(name: str) -> bool:
    """Whether it is a function of JAX's, or what one is made of."""
    return name.removeprefix("_") in OPERATIONS


def is_whole(name: str, steps: Steps) -> bool:
    """Whether a jitted function does a good part of the step's work at once."""
    return not is_operation(name) and steps.work.get(name, 0.0) >= SLIGHT
