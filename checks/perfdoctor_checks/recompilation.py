"""A function is compiled again and again.

What it finds
-------------
Functions that jax compiles anew after warm-up, since something about their arguments changes from
call to call: a shape, a type, a static value, or the function object itself.

Why it costs
------------
A compilation takes from tens of milliseconds to minutes, and the device idles meanwhile. One more
is nothing in a long run; one every few steps is most of its time.

How it is measured
------------------
jax.monitoring tells when each compilation ended and how long it took. Those count that ended inside
the traced window, of functions that had been compiled before, and that kept coming: a first
evaluation compiles too, and is over. Without a window, or where it was over before the next one
was due, the timed steps tell. Why it was traced again is read from `jax_explain_cache_misses`.

How to fix
----------
Pad batches and sequences to a few sizes; pass what changes as an array, not as a static argument;
call `jax.jit` once, outside the loop, not on a new lambda each time.

References
----------
JAX, "Just-in-time compilation": JIT and caching; FAQ, "jit changes the behaviour of my function".
"""

from perfdoctor import Observation, Outcome, needed, ok
from perfdoctor_checks._compilations import (
    recurs,
    repeated,
    told,
    total,
    while_timed,
    without,
    without_steps,
)
from perfdoctor_checks._repeats import inside, is_due, recurring, repeats_of, share_lost, spent_s

ID = "recompilation"
NEEDS = ("compiles",)


def check(observation: Observation) -> Outcome:
    """Looks for repeats inside the window; without a window, among all compilations."""
    compiles, steps = needed(observation.compiles), observation.steps
    if steps is None:
        return without_steps(observation, compiles)
    found = recurring(compiles, steps) if steps.is_traced else {}
    if not found and (not steps.is_traced or is_due(compiles, steps)):
        return while_timed(observation, compiles)
    lost_s = {name: spent_s(each, steps) for name, each in found.items()}
    if not found:
        again = sum(len(each) for each in inside(repeats_of(compiles), steps).values())
        text = f"{again} compilations in the window were repeats" if again else "none in the window"
        return ok(f"nothing is compiled again and again; {text}", total(compiles))
    worst = max(found, key=lost_s.__getitem__)
    count = len(found[worst])
    summary = (
        f"{worst} was compiled again {count} time{'s' * (count > 1)} in {steps.window_s:.1f} s, "
        f"{lost_s[worst] / count * 1e3:.0f} ms each"
    )
    facts = [repeated(name, each, lost_s[name]) for name, each in found.items()]
    reason = found[worst][-1].reason
    repeats = repeats_of(compiles)
    share = sum(share_lost(repeats[name], each, steps) for name, each in found.items())
    gain = without(share, recurs(reason))
    return told(observation, summary, reason, [*facts, total(compiles)], gain)
