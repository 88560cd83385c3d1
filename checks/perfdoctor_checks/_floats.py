"""The types of a step's numbers, and their precision."""

from perfdoctor import Evidence, Observation, Program, place

FLOATS = ("f64", "f32", "bf16", "f16")
EXACT = ("HIGHEST", "HIGH")
SHOWN = 3


def origin(program: Program) -> str:
    """Where the float64 come from, if no argument brings them in."""
    if not program.wide_places:
        return ""
    widest = program.wide_places[0]
    where = f"{widest.share:.0%} of them in {widest.function} ({place(widest.file, widest.line)})"
    if any(argument.dtype == "f64" for argument in program.arguments):
        return f", {where}"
    return f", though no argument is: {where}"


def exact_share(program: Program) -> float:
    """Of the flops of the forward pass, those of float32 products in a high precision."""
    total = sum(layer.flops for layer in program.layers)
    exact = sum(e.flops for e in program.layers if e.precision in EXACT and e.dtype == "f32")
    return exact / total if total > 0 else 0.0


def shares_of(program: Program) -> dict[str, float]:
    """Of the floating-point elements that the program computes, the share of each type."""
    counts = {kind: program.elements_by_dtype.get(kind, 0) for kind in FLOATS}
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
