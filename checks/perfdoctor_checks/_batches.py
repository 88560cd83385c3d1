"""Which axis of a step's data is the batch's."""

from perfdoctor import Leaf, Observation, Program, StepCalls, Steps, needed, shared_lengths

SHOWN = 3
"""Arguments that are named at most."""


def batches(observation: Observation) -> tuple[list[int], str]:
    """The lengths that may be the batch's, the likeliest first; and whose axis it is."""
    calls, program, steps = observation.calls, observation.program, needed(observation.steps)
    parts = observation.target.parts
    if parts is not None and parts.batch_size is not None:
        return [parts.batch_size], "the workload's batch_size"
    if calls is not None:
        return in_common(calls, program)
    if steps.batch_size is None or program is None:
        return [], ""
    names = ", ".join(argument.name for argument in program.of_batch(steps.batch_size))
    return [steps.batch_size], f"leading size of {names or 'the data'}"


def in_common(calls: StepCalls, program: Program | None) -> tuple[list[int], str]:
    """Lengths that nearly all arrays have that are new in each step, and the arrays' names; two
    axes together where the program takes them as one.
    """
    trips = {loop.trips for loop in program.loops} if program is not None else set()
    fresh = new_arrays(calls)
    common = shared_lengths([(leaf.shape, leaf.bytes) for leaf in fresh])
    sizes = [size for size in common if size not in trips] or common
    having = [leaf for leaf in fresh if set(sizes) & set(leaf.shape[:2])]
    leading = [size for size in sizes if all(leaf.shape[0] == size for leaf in having)]
    names = ", ".join(leaf.argument for leaf in having[:SHOWN])
    if program is not None and program.flattens:
        both = {shape[0] * shape[1] for leaf in having if len(shape := leaf.shape) > 1}
        return sorted(both), f"the first two axes of {names}, which are new in each step"
    return leading or sizes, f"axis of {names}, which are new in each step"


def examples_a_call(steps: Steps, calls: StepCalls | None) -> int | None:
    """As the trace tells; of a function that is called with batches of several sizes, one of which
    was traced, as the calls were probed.
    """
    if steps.batch_size is None or calls is None:
        return steps.batch_size
    lengths, _ = in_common(calls, None)
    is_probed = any(leaf.shape[0] == steps.batch_size for leaf in new_arrays(calls))
    return steps.batch_size if is_probed or not lengths else lengths[0]


def new_arrays(calls: StepCalls) -> list[Leaf]:
    """Those that are new in each step, but for random keys."""
    leaves = [leaf for call in calls.calls for leaf in call.leaves if leaf.shape]
    data = [leaf for leaf in leaves if leaf.kind in ("device", "host") and not leaf.is_raw_key]
    return [leaf for leaf in data if leaf.role == "new"]


def draws(calls: StepCalls) -> bool:
    """Whether a step is given a key: else it computes on all data that there are, in each step."""
    leaves = [leaf for call in calls.calls for leaf in call.leaves]
    return any(leaf.kind == "key" or leaf.is_raw_key for leaf in leaves)
