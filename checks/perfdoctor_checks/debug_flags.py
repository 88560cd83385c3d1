"""Aids for debugging are switched on.

What it finds
-------------
Settings of JAX, flags of XLA and variables of Python that help to find errors and were left on:
`jax_debug_nans`, `jax_disable_jit`, transfer guards that log, dumps, Python's development mode.

Why it costs
------------
`jax_debug_nans` and `jax_debug_infs` search the results of each call before the next may begin: 5 %
at 3 MB of parameters, 1.6 times at 8 MB. `jax_disable_jit` runs each operation by itself. Python's
debugging allocators slow all of Python. `jax_enable_checks`, `jax_check_tracer_leaks`,
`jax_log_compiles` and dumps cost while something is compiled, and nothing after (measured); but
with `jax_check_tracer_leaks` jax may compile small functions of its own again in each step.
`checkify` computes beside each operation whether its results or indices are wrong.

How it is measured
------------------
The settings in force are read from the running jax, and the environment beside them; functions that
`checkify` has changed are known by what they return. What an aid costs is not in the observation: a
trial without it decides whether this is an issue. `jax_disable_jit` needs no trial, nor does
`jax_check_tracer_leaks` where the timed steps mostly compile functions that are not the user's.

How to fix
----------
Unset the variable, or remove the `jax.config.update` from the code; switch it on when a NaN is to
be found.

References
----------
JAX, "Introduction to debugging": flags; "Transfer guard". Python, "Development Mode".
"""

from perfdoctor import Evidence, Observation, Outcome, hint, issue, needed, ok
from perfdoctor_checks._aids import LEAKS, NO_JIT
from perfdoctor_checks._switched_on import (
    dumps,
    fix,
    from_checkify,
    from_python,
    from_settings,
    from_xla,
    summary,
    with_compiling,
)

ID = "debug-flags"
NEEDS = ("settings",)


def check(observation: Observation) -> Outcome:
    """Lists what is on; those that slow the steps first."""
    settings = needed(observation.settings)
    found = [*from_settings(settings), *from_python(observation), *from_xla(observation)]
    found += [*dumps(observation), *from_checkify(observation)]
    found.sort(key=lambda aid: aid.effect is None)
    if not found:
        count = Evidence("settings changed", len(settings), "", "jax.config")
        return ok("no aid for debugging is switched on", count)
    evidence = [Evidence(aid.name, aid.value, "", aid.source) for aid in found]
    seen = sorted(with_compiling(observation, found), key=lambda aid: aid.effect is None)
    is_certain = any(aid.name == NO_JIT or (aid.name == LEAKS and aid.effect) for aid in seen)
    said = issue if is_certain else hint
    return said(summary(seen), evidence, [fix(observation, found)])
