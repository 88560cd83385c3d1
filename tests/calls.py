"""Calls of a step, of which only some of the numbers matter to a test."""

from perfdoctor.schema.calls import Call, Leaf


def call_of(
    *leaves: Leaf,
    function: str = "step",
    before_ms: float = 0.0,
    before_cpu_ms: float = 0.0,
    inside_ms: float = 1.0,
    inside_cpu_ms: float = 1.0,
) -> Call:
    """One that is made at once, and takes a millisecond."""
    return Call(
        function=function,
        leaves=leaves,
        before_ms=before_ms,
        before_cpu_ms=before_cpu_ms,
        inside_ms=inside_ms,
        inside_cpu_ms=inside_cpu_ms,
    )
