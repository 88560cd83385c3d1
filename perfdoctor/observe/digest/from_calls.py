"""The steps of a run of which no trace is there, from its jitted calls alone: it ended before, or
its trace was too large to be read.
"""

from perfdoctor.schema.calls import MOSTLY, Call, StepCalls
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.steps import ENDED_EARLY, Steps


def told_by_calls(recording: Recording) -> StepCalls | None:
    """The calls of a run, if they are what takes its time: neither operations that it dispatches
    one by one, nor compilations.
    """
    calls = recording.step_calls
    if calls is None or recording.dispatches or calls.compilations >= MOSTLY:
        return None
    return calls


def steps_from(calls: StepCalls, why_untraced: str = ENDED_EARLY) -> Steps:
    """As far as the calls tell. Where the host runs ahead, the device computes all the time; else
    what is neither between two calls nor the making of one is taken for computing.
    """
    main = max(calls.calls, key=size_bytes)
    work_ms = sum(call.before_cpu_ms for call in calls.calls)
    blocked_ms = sum(max(0.0, call.before_ms - call.before_cpu_ms) for call in calls.calls)
    dispatch_ms = sum(call.inside_cpu_ms for call in calls.calls)
    collecting_ms = min(calls.collecting_ms, work_ms)
    shown = 0.0 if calls.runs_ahead else 1.0
    exposed_ms = min(calls.time_ms, shown * work_ms)
    collecting_share = collecting_ms / work_ms if work_ms > 0 else 0.0
    each: dict[str, float] = {}
    for call in calls.calls:
        each[call.function] = each.get(call.function, 0.0) + 1.0
    return Steps(
        is_traced=False,
        why_untraced=why_untraced,
        function=main.function,
        count=calls.steps,
        left_out=0,
        batch_size=None,
        samples_per_s=None,
        threads=calls.threads,
        call_ms=calls.time_ms * calls.threads if calls.threads > 1 else 0.0,
        time_ms=calls.time_ms,
        median_ms=calls.time_ms,
        p95_ms=calls.time_ms,
        standard_error_ms=0.0,
        device_busy_ms=calls.time_ms - exposed_ms,
        exposed_etl_ms=0.0,
        exposed_dispatch_ms=0.0,
        exposed_wait_ms=0.0,
        exposed_gc_ms=exposed_ms * collecting_share,
        exposed_other_ms=exposed_ms * (1 - collecting_share),
        etl_ms=0.0,
        dispatch_ms=dispatch_ms,
        wait_ms=blocked_ms,
        gc_ms=collecting_ms,
        cpu_ms=work_ms + dispatch_ms + calls.threads_cpu_ms + calls.children_cpu_ms,
        waits=shown,
        dispatches=float(len(calls.calls)),
        calls=each,
    )


def size_bytes(call: Call) -> int:
    """Of all that a call takes."""
    return sum(leaf.bytes for leaf in call.leaves)
