"""NVIDIA's libraries for neural networks are missing, too old, or passed over.

What it finds
-------------
A library of CUDA that could not be loaded or is older than jax's plugin was compiled for; a plugin
of another version than jaxlib; convolutions and attention in half precision that XLA computes with
kernels of its own where cuDNN has faster ones.

Why it costs
------------
Without cuDNN a convolution can't run at all. Beside it, cuDNN's kernels are chosen by measurement
for each shape, and its fused attention never writes the matrix of scores to memory.

How it is measured
------------------
jax's plugin tells the versions that it loaded and those it was built for. What the compiled step
calls (`__cudnn$conv…`, `__cudnn$fmha…`) is laid beside the convolutions and products of the
program. What a passed-over kernel costs can't be seen, so that is a hint.

How to fix
----------
`pip install -U "jax[cuda13]"` or `"jax[cuda12]"` brings plugin and libraries that fit each other.
For attention call `jax.nn.dot_product_attention(q, k, v, implementation="cudnn")`.

References
----------
Deeplearning4j, "Performance debugging", cuDNN. JAX, "Installation"; `jax.nn.dot_product_attention`.
"""

from perfdoctor import Fix, Observation, Outcome, hint, issue, not_applicable, not_measured, ok
from perfdoctor_checks._cuda import extra
from perfdoctor_checks._cudnn import facts, mismatch, passed_over
from perfdoctor_checks._gpu_libraries import broken, unknown
from perfdoctor_checks._reasons import hint_of

ID = "cudnn"
NEEDS = ()


def check(observation: Observation) -> Outcome:
    """Looks at the libraries first, then at what the step calls."""
    if observation.backend is None and not observation.gpus:
        return not_applicable("there is no NVIDIA GPU")
    backend = observation.backend
    if backend is None:
        return not_measured(
            observation.not_measured.get("backend", "it is not known what jax computes on")
        )
    if backend.platform not in ("gpu", "cuda"):
        where = "CPU" if backend.platform == "cpu" else backend.platform.upper()
        return not_applicable(f"the computation runs on the {where}, not on an NVIDIA GPU")
    if not observation.gpus and not backend.libraries:
        return not_applicable("no NVIDIA GPU is in use")
    evidence = facts(observation, backend)
    faults = broken(backend)
    if faults:
        fixes = [Fix(summary="install the libraries that fit", how=extra(observation))]
        say = issue if observation.steps is None else hint
        return say("; ".join(faults), evidence, fixes)
    if silent := unknown(backend):
        return hint("; ".join(silent), evidence)
    found = mismatch(observation) + passed_over(observation)
    if found:
        return hint_of(found, evidence)
    return ok(f"{len(backend.libraries)} CUDA libraries loaded, none too old", *evidence)
