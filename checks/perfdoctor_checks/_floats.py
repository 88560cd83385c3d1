"""The types of a step's numbers, and their precision."""

import re

from perfdoctor import Evidence, Observation, Program, place

FLOATS = ("f64", "f32", "bf16", "f16")
"""Types that a program may compute in, as MLIR names them."""
NARROW = re.compile(r"f[48]E\w+")
"""The names of those of eight bits and fewer, of which there are many: f8E4M3FN, f4E2M1FN."""
EXACT = ("HIGHEST", "HIGH")
"""Precisions of a product that cost more than the default one."""
SHOWN = 3
"""Arguments and places that are named at most."""


def origin(program: Program) -> str:
    """Words for where float64 comes from, if no argument brings it in."""
    if not program.wide_places:
        return ""
    widest = program.wide_places[0]
    where = f"{widest.share:.0%} of them in {widest.function} ({place(widest.file, widest.line)})"
    if any(argument.dtype == "f64" for argument in program.arguments):
        return f", {where}"
    return f", though no argument is: {where}"


def exact_share(program: Program) -> float:
    """The share of the forward pass's FLOPs that are float32 products in a high precision."""
    total = sum(layer.flops for layer in program.layers)
    exact = sum(e.flops for e in program.layers if e.precision in EXACT and e.dtype == "f32")
    return exact / total if total > 0 else 0.0


def shares_of(program: Program) -> dict[str, float]:
    """The share of each type among the floating-point elements that the program computes."""
    narrow = filter(NARROW.fullmatch, sorted(program.elements_by_dtype))
    counts = {kind: program.elements_by_dtype.get(kind, 0) for kind in (*FLOATS, *narrow)}
    total = max(1, sum(counts.values()))
    return {kind: count / total for kind, count in counts.items()}


def facts(observation: Observation, program: Program, shares: dict[str, float]) -> list[Evidence]:
    """Shares, float64 arguments, and who switched x64 on."""
    found = [
        Evidence(kind, round(share, 3), "share of elements", "StableHLO")
        for kind, share in shares.items()
        if share > 0
    ]
    wide = [argument.name for argument in program.arguments if argument.dtype == "f64"]
    if wide:
        names = ", ".join(wide[:SHOWN]) + (", …" if len(wide) > SHOWN else "")
        found.append(Evidence("float64 arguments", len(wide), "arguments", names))
    found += [
        Evidence(
            f"float64 in {each.function}",
            round(each.share, 3),
            "share of float64",
            place(each.file, each.line),
        )
        for each in program.wide_places[:SHOWN]
    ]
    if exact_share(program) > 0:
        share = round(exact_share(program), 3)
        found.append(Evidence("HIGH or HIGHEST", share, "share of flops", "StableHLO"))
    for setting in observation.settings or ():
        if setting.name in ("jax_enable_x64", "jax_default_matmul_precision"):
            source = f"set in the {setting.origin}"
            found.append(Evidence(setting.name, setting.value, "", source))
    return found
