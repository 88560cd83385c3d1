"""The network has sizes that cost more than they give.

What it finds
-------------
Kernels beyond 7, convolutions of more than 1024 channels, dense layers beyond 2048, more than
10 000 classes, images beyond 600 pixels, recurrences over more than 500 steps, more than 100
layers, or 20 dense ones with nothing else between; tables of more than 10 000 rows that are
computed anew though a step uses few of them; equal layers written out by a Python loop; on GPUs and
TPUs sizes that miss the hardware's tiles.

Why it costs
------------
Work grows with the square of kernel and width, and in proportion to classes, pixels and steps.
The derivative with respect to a table is as large as the table, and so is its optimizer's state.
Layers written out make the program long: XLA compiles each one again. Sizes that miss the tiles are
padded.

How it is measured
------------------
The programs of the step tell each convolution and matrix product of the forward pass, its line, its
sizes and its share of the work, and of which tables rows are looked up, and which are computed as a
whole; the trace, what operations on arrays with a very long axis take, and what all convolutions
take. A size beyond a bound is a finding only where it takes a large part
of the work. What a network within the bound would gain is estimated by that part, at most as if it
took nothing; whether it does as well only its training tells. The kernel of the reference loop is
tried.

How to fix
----------
Two or three 3 by 3 kernels in place of a large one; fewer channels; strides before wide layers;
`jax.lax.scan` over equal layers or time steps; truncated backpropagation; sampled or hierarchical
softmax; the derivative with respect to the rows of a table that are used; multiples of 8 (GPU) or
128 (TPU).

References
----------
Deeplearning4j, "Performance debugging", step 5: networks. JAX, "jax.lax.scan"; NVIDIA, "Matrix
multiplication background".
"""

from perfdoctor import Observation, Outcome, hint, issue, needed, not_applicable, not_measured, ok
from perfdoctor_checks._bounds import within_bounds
from perfdoctor_checks._shapes import channels, deep, images, recurrence, tiles, written_out
from perfdoctor_checks._tables import swept
from perfdoctor_checks._wide import UNREAD, dense, facts, kernels

ID = "network"
NEEDS = ("program",)


def check(observation: Observation) -> Outcome:
    """Compares the layers with the guide's bounds."""
    program = needed(observation.program)
    unread = "" if program.is_whole else observation.not_measured.get("layers", UNREAD)
    if not program.layers and not program.loops and not unread:
        return not_applicable("the step has no convolutions and no matrix products")
    reasons = [
        *kernels(observation, program),
        *channels(program),
        *dense(observation, program),
        *swept(observation, program),
        *deep(program),
        *images(program),
        *recurrence(program),
        *written_out(observation, program),
        *tiles(observation, program),
    ]
    evidence = facts(observation, program)
    if not reasons and unread:
        return not_measured(unread)
    if not reasons:
        return ok(f"{len(program.layers)} kinds of layers, all within the usual bounds", *evidence)
    fixes = [fix for _, found in reasons for fix in found]
    summary = "; ".join(text for text, _ in reasons)
    gain = within_bounds(observation, program)
    if gain is not None:
        return issue(summary, evidence, fixes, gain)
    return hint(summary, evidence, fixes)
