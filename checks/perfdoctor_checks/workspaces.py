"""Memory is asked for anew where buffers could be reused.

What it finds
-------------
A state that the step replaces but may not overwrite (no donation), donations that can't be used,
settings of glibc's allocator that give each freed buffer back to the kernel, settings that make a
GPU's allocator do the like, and memory in pieces too small to use.

Why it costs
------------
Without donation old and new state are in memory together, and parts that hardly change are copied.
That often costs no time (0.99 to 1.13 times for 1.5 to 150 MB), but 1.4 times where few rows of a
large table change. With `MALLOC_*` thresholds each buffer is mapped and its pages are faulted in
anew: 2 to 2.4 times slower.

How it is measured
------------------
The step's program says which arguments a result replaces and which are donated; of a step of
several functions, its calls as they were seen do. The compiled step says how many bytes share
buffers; the rest is read from the environment and the devices' allocators.
What it costs is not in the observation: a trial decides.

How to fix
----------
`jax.jit(step, donate_argnums=0)`, and rebind the state: `state = step(state, batch)`. Unset
`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`, `MALLOC_TOP_PAD_`; leave a GPU's allocator its
preallocated pool.

References
----------
Deeplearning4j, "Workspaces". JAX, "Buffer donation", "GPU memory allocation". mallopt(3): setting
one of the thresholds ends their automatic adjustment.
"""

from perfdoctor import Observation, Outcome, issue, needed, not_measured, ok
from perfdoctor_checks._allocators import allocator, in_pieces, on_gpu
from perfdoctor_checks._donation import not_donated, unusable
from perfdoctor_checks._in_place import copied, facts, without_copies
from perfdoctor_checks._reasons import fixes_of, hint_of, joined

ID = "workspaces"
NEEDS = ("steps",)


def check(observation: Observation) -> Outcome:
    """Collects the reasons why buffers are not reused."""
    needed(observation.steps)
    reasons = (
        allocator(observation)
        + on_gpu(observation)
        + not_donated(observation)
        + unusable(observation)
        + in_pieces(observation)
    )
    evidence = facts(observation)
    gain = without_copies(observation)
    if not_donated(observation) and gain is not None:
        text = f"{copied(observation)}; {joined(reasons)}"
        return issue(text, evidence, fixes_of([*not_donated(observation), *reasons]), gain)
    if reasons:
        return hint_of(reasons, evidence)
    if observation.program is None and observation.executable is None:
        return not_measured("the step's program was not read")
    return ok("nothing keeps buffers from being reused", *evidence)
