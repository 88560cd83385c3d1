"""The same faults, one module each, as a loop that hands over its parts.

Each has `init() -> state`, `step(state, batch) -> (state, metrics)` and `batches() -> iterator`. Of
the same source text `tests/clinic/cross.py` makes the script, the loop with a listener, and the
workload.
"""
