"""cuDNN as it was built and loaded, and attention that passes it over."""

from itertools import product

from perfdoctor import Backend, Evidence, Fix, Layer, Observation, needed, place
from perfdoctor_checks._cuda import PLUGIN, extra
from perfdoctor_checks._gpu_libraries import version
from perfdoctor_checks._limits import LEAST_SHARE
from perfdoctor_checks._reasons import Reason

HALF = ("bf16", "f16")
"""Types for which cuDNN has a fused attention."""
FUSED = 'jax.nn.dot_product_attention(q, k, v, implementation="cudnn")'
"""The call of cuDNN's fused attention, to be pasted."""


def mismatch(observation: Observation) -> list[Reason]:
    """A plugin that was made for another jaxlib."""
    packages = observation.libraries.packages if observation.libraries else {}
    jaxlib = packages.get("jaxlib")
    return [
        (
            f"{name} {each} and jaxlib {jaxlib} do not match",
            Fix(summary="install one version of both", how=extra(observation)),
        )
        for name, each in packages.items()
        if PLUGIN.match(name) and jaxlib is not None and each != jaxlib
    ]


def passed_over(observation: Observation) -> list[Reason]:
    """Convolutions and attention for which the step does not call cuDNN."""
    program, executable = observation.program, observation.executable
    if program is None or executable is None:
        return []
    called = tuple(executable.custom_calls)
    found = []
    total = max(1.0, sum(layer.flops for layer in program.layers))
    wide = [each for each in program.layers if each.kind == "convolution" and any_wide(each)]
    if sum(e.flops for e in wide) >= LEAST_SHARE * total and not calls(called, "__cudnn$conv"):
        where = place(wide[0].file, wide[0].line)
        fix = Fix(
            summary="let XLA call cuDNN for convolutions",
            how=f"unset XLA_FLAGS; {extra(observation)}",
        )
        found.append((f"the convolutions ({where}) do not use cuDNN", fix))
    scores = attention(observation)
    if scores and scores.flops >= LEAST_SHARE * total and not calls(called, "__cudnn$fmha"):
        where = f"{scores.function}, {place(scores.file, scores.line)}"
        fix = Fix(summary="use cuDNN's fused attention", how=FUSED, changes_results="numerics")
        found.append((f"attention ({where}) is not fused", fix))
    return found


def any_wide(layer: Layer) -> bool:
    """Whether a kernel is wider than 1 by 1: XLA makes a matrix product of such a convolution."""
    return any(size > 1 for size in layer.kernel)


def calls(called: tuple[str, ...], prefix: str) -> bool:
    """Whether the step calls a target with this beginning."""
    return any(name.startswith(prefix) for name in called)


def attention(observation: Observation) -> Layer | None:
    """The product that makes attention's scores: one more sums over the positions it yields."""
    program = needed(observation.program)
    if not any(name.endswith(".exponential") for name in program.operations):
        return None
    sizes = {size for argument in program.data for size in argument.shape[1:]}
    positions = sizes | {size - 1 for size in sizes}
    products = [e for e in program.layers if e.kind == "product" and e.dtype in HALF]
    for scores, mixing in product(products, products):
        same = (scores.function, scores.file) == (mixing.function, mixing.file)
        fit = (scores.outputs, scores.inputs) == (mixing.inputs, mixing.outputs)
        if scores is not mixing and same and fit and scores.outputs in positions:
            return scores
    return None


def facts(observation: Observation, backend: Backend) -> list[Evidence]:
    """Versions, and what the step calls of cuDNN."""
    found = [
        Evidence(
            each.name,
            None if each.loaded is None else version(each.name, each.loaded),
            "" if each.built_for is None else f"for {version(each.name, each.built_for)}",
            "jax's CUDA plugin",
        )
        for each in backend.libraries
    ]
    packages = observation.libraries.packages if observation.libraries else {}
    found += [
        Evidence(name, each, "", "installed packages")
        for name, each in packages.items()
        if name == "jaxlib" or PLUGIN.match(name)
    ]
    targets = observation.executable.custom_calls if observation.executable else {}
    return found + [
        Evidence(name, count, "calls", "compiled step")
        for name, count in targets.items()
        if name.startswith("__cudnn$")
    ]
