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
evaluation compiles too, and is over. Without steps, the function that took most of the compiling.
Why it was traced again is read from `jax_explain_cache_misses`.

How to fix
----------
Pad batches and sequences to a few sizes; pass what changes as an array, not as a static argument;
call `jax.jit` once, outside the loop, not on a new lambda each time.

References
----------
JAX, "Just-in-time compilation": JIT and caching; FAQ, "jit changes the behaviour of my function".
"""

import re
from collections import defaultdict

from msgspec import structs

from perfdoctor import (
    Change,
    Compile,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Steps,
    estimated,
    issue,
    needed,
    not_measured,
    ok,
    place,
)

ID = "recompilation"
NEEDS = ("compiles",)
FEWEST_REPEATS = 3
"""In all: a first step with weak types and a smaller last batch make two."""
SPREAD, BURST_S, LEAST_SHARE = 0.25, 0.5, 0.01
"""Of the window, and in all: a burst (the first evaluation, the end of a run) is over sooner. Of
the window: below, the loss is noise."""
MOST = 0.98
"""Of the time: what a step takes besides is not known any better."""
HELD_UP, HELD_UP_HIGH = 1.45, 2.0
"""Times what jax counts: a compilation takes threads, caches and memory from what runs beside it.
Three scripts of tests/clinic show 1.3 to 1.6 (callbacks_trainer, eqx_series, plain_mlp)."""
MOST_SLOWED = 5.0
"""Times that steps take longer for being traced: 1 to 5 in nearly all scripts of tests/clinic (9
was seen once); with more, the window alone is asked, which tells less of a loss, not more."""
RECURRING, RECURRING_LOW = 0.5, 0.1
"""The same for shapes, of which each comes back: a script whose batches are as long as their
longest text shows 1.0 in its first half minute, and 0.1 over a long run."""
SHOWN, LENGTH = 2, 60
"""Arguments named in the summary, and characters of a value."""
TYPES = re.compile(r"\* at (.+?), now (.+?) and before (.+?)(?:https://.*)?$", re.MULTILINE)
STATIC = re.compile(
    r"\* at input path (\S+), now .*?Static\(val=(.*)\) and before .*Static\(val=(.*)\),"
)
TREE = re.compile(r"\* at input path (\S*), now (.+?) and before (.+?), so (.*)")
SETTING = re.compile(r"\* (\w+) differs: now (.+?) and before (.+)")
DEFINED = re.compile(r"defined at (.+?):(\d+)")
QUOTES = "'\""
WEAK = re.compile(r"\{weak_type=(True|False)\}")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
KEYS = re.compile(r"key sets: \{(.*)\}")
Repeats = dict[str, list[Compile]]


def check(observation: Observation) -> Outcome:
    """Looks for repeats inside the window; without a window, among all compilations."""
    compiles, steps = needed(observation.compiles), observation.steps
    if steps is None:
        return without_steps(observation, compiles)
    found = recurring(compiles, steps)
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


def without_steps(observation: Observation, compiles: tuple[Compile, ...]) -> Outcome:
    """The function that took most of the compiling; JAX explains only those of the user."""
    found = repeats_of(compiles)
    seconds: defaultdict[str, float] = defaultdict(float)
    for each in compiles:
        seconds[each.function] += each.seconds
    worst = max(seconds, key=seconds.__getitem__, default="")
    repeats = found.get(worst, [])
    dominates = seconds[worst] >= sum(seconds.values()) / 2
    explained = any(each.reason for each in repeats)
    if len(repeats) < FEWEST_REPEATS or not dominates or not explained:
        return not_measured("no steps were seen, and no function was compiled again and again")
    first_s = min(each.at_s for each in compiles if each.function == worst)
    span_s = max(repeats[-1].at_s - first_s, 1e-9)
    lost = sum(each.seconds for each in repeats)
    summary = (
        f"{worst} was compiled {len(repeats) + 1} times in {span_s:.1f} s, as if in every step, "
        f"{lost / len(repeats) * 1e3:.0f} ms each"
    )
    facts = [repeated(worst, repeats, lost), total(compiles)]
    reason = repeats[-1].reason
    return told(observation, summary, reason, facts, without(lost / span_s, recurs(reason)))


def recurs(reason: str | None) -> bool:
    """Whether it is a shape that differs."""
    return explained(reason)[0] == "shape"


def told(
    observation: Observation, summary: str, reason: str | None, facts: list[Evidence], gain: Gain
) -> Outcome:
    """The issue, with what jax says of its cause."""
    kind, why = explained(reason)
    source = "jax_explain_cache_misses"
    facts.append(Evidence(name="traced again since", value=why, unit="", source=source))
    return issue(f"{summary}; {why}", facts, [fix(observation, kind)], gain)


def repeats_of(compiles: tuple[Compile, ...]) -> Repeats:
    """By function, all its compilations but the first; control flow outside of any function is a
    matter of missing-jit.
    """
    found: defaultdict[str, list[Compile]] = defaultdict(list)
    own = [each for each in compiles if not each.is_control_flow]
    for each in sorted(own, key=lambda one: one.at_s):
        found[each.function].append(each)
    return {name: each[1:] for name, each in found.items() if len(each) > 1}


def inside(repeats: Repeats, steps: Steps) -> Repeats:
    """Those that ended in the window."""
    end_s = steps.began_s + steps.window_s
    chosen = {
        name: [one for one in each if steps.began_s <= one.at_s <= end_s]
        for name, each in repeats.items()
    }
    return {name: each for name, each in chosen.items() if each}


def recurring(compiles: tuple[Compile, ...], steps: Steps) -> Repeats:
    """Repeats in the window of functions that keep being compiled."""
    repeats = repeats_of(compiles)
    longest_burst_s = max(BURST_S, SPREAD * steps.window_s)
    return {
        name: each
        for name, each in inside(repeats, steps).items()
        if len(repeats[name]) >= FEWEST_REPEATS
        and (name == steps.function or each[-1].at_s - each[0].at_s >= longest_burst_s)
        and spent_s(each, steps) >= LEAST_SHARE * steps.window_s
    }


def spent_s(compiles: list[Compile], steps: Steps) -> float:
    """Of the window."""
    return sum(min(each.seconds, each.at_s - steps.began_s) for each in compiles)


def share_lost(repeats: list[Compile], within: list[Compile], steps: Steps) -> float:
    """Of the time that the program takes without a trace, what compiling a function again takes.

    As in the later half of its repeats before the window, if these go on as often in it, but for
    the trace. Else, as when they were a start's, as in the window itself.
    """
    before = [each for each in repeats if each.at_s <= steps.began_s]
    if len(before) > 2 * FEWEST_REPEATS:
        first, *later = before[len(before) // 2 :]
        span_s = max(later[-1].at_s - first.at_s, 1e-9)
        if len(within) >= len(later) / span_s * steps.window_s / MOST_SLOWED:
            return sum(each.seconds for each in later) / span_s
    lost_s = spent_s(within, steps)
    rest_s = max(0.0, steps.window_s - lost_s) / steps.slowed
    return lost_s / max(lost_s + rest_s, 1e-9)


def without(lost: float, recurs: bool) -> Gain:
    """The same steps without the compilations that take this share of the time.

    What they cost is more than what jax counts for them. `recurs`: what differs comes back, as the
    shapes of a data set do: some of the compilations are the last of their kind.
    """
    lost = min(MOST, max(0.0, lost))
    central, low = (RECURRING, RECURRING_LOW) if recurs else (HELD_UP, 1.0)

    def gain(part: float, factor: float) -> float:
        return 1 + factor * (1 / (1 - part * lost) - 1)

    return estimated(gain(1.0, central), gain(0.8, low), gain(1.0, HELD_UP_HIGH))


def explained(reason: str | None) -> tuple[str, str]:
    """JAX's explanation as a kind of cause, and in words."""
    text = reason or ""
    if changes := STATIC.findall(text):
        words = "; ".join(static(*each) for each in changes[:SHOWN])
        return "static", words
    if changes := TYPES.findall(text) if "input path" not in text else []:
        kinds = [type_change(now, before) for _, now, before in changes]
        named = [
            f"{name}: {words}" for (name, _, _), (_, words) in zip(changes, kinds, strict=True)
        ]
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        return kinds[0][0], ", ".join(named[:SHOWN]) + more
    if change := TREE.search(text):
        path, now, before, why = change.groups()
        keys = KEYS.search(why)
        words = f"{keys[1]} is not always there" if keys else f"{cut(before)} -> {cut(now)}"
        return "structure", f"its arguments change their structure at {path or 'the top'}: {words}"
    if change := SETTING.search(text):
        name, now, before = change.groups()
        return "setting", f"the setting {name} changes: {cut(before)} -> {cut(now)}"
    defined = DEFINED.search(text)
    if "on the same line" in text and defined:
        where = place(defined[1], int(defined[2]))
        return "function", f"each time it is a new function object, defined at {where}"
    return "unknown", "jax does not say why: the devices or shardings of its arguments may change"


def type_change(now: str, before: str) -> tuple[str, str]:
    """What differs of a type, and in words."""
    weak = ["weak " if "True" in WEAK.findall(each) else "" for each in (before, now)]
    old, new = WEAK.sub("", before), WEAK.sub("", now)
    same_dtype = old.partition("[")[0] == new.partition("[")[0]
    words = f"{weak[0]}{old} -> {weak[1]}{new}"
    return ("shape", f"shape {words}") if same_dtype and old != new else ("type", f"type {words}")


def static(path: str, now: str, before: str) -> str:
    """The static argument, by its name or number, and its values."""
    key = path.rpartition("[")[2].rstrip("]")
    name = f"static argument {int(key) + 1 if key.isdigit() else key.strip(QUOTES)}"
    old, new = ADDRESS.sub("", before), ADDRESS.sub("", now)
    if old == new:
        return f"{name} is a new object each time: {cut(new)}"
    return f"{name}: {cut(old)} -> {cut(new)}"


def cut(text: str) -> str:
    """Not longer than a summary bears."""
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


def repeated(name: str, compiles: list[Compile], seconds: float) -> Evidence:
    """How often and how long a function was compiled again."""
    unit = f"repeats, {seconds:.2f} s in all"
    source = "jax.monitoring: backend_compile_duration"
    return Evidence(name=name, value=len(compiles), unit=unit, source=source)


def total(compiles: tuple[Compile, ...]) -> Evidence:
    """All compilations of the run."""
    seconds = sum(each.seconds for each in compiles)
    unit = f"in the run, {seconds:.1f} s in all"
    source = "jax.monitoring: backend_compile_duration"
    return Evidence(name="compilations", value=len(compiles), unit=unit, source=source)


FIXES = {
    "shape": Fix(
        summary="keep to one shape, or a few: pad, or leave out the smaller last batch",
        how="inputs = jnp.pad(inputs, [(0, size - len(inputs))] + [(0, 0)] * (inputs.ndim - 1))",
        changes_results="numerics",
    ),
    "type": Fix(
        summary="pass the argument with the same type in each call",
        how="step(state, jnp.asarray(value, jnp.float32))",
        changes_results="numerics",
    ),
    "static": Fix(
        summary="pass what changes as an array, not as a static argument",
        how="take it out of static_argnums/static_argnames and pass jnp.float32(value)",
    ),
    "structure": Fix(
        summary="call it with the same arguments, named in the same way, each time",
        how="step(state, inputs, labels)  # each dictionary with the same keys, lists as long",
    ),
    "setting": Fix(
        summary="make the setting once, before the training loop",
        how="jax.config.update(...)  # once, not around single calls",
    ),
    "function": Fix(
        summary="jit the function once, outside the loop",
        how="step = jax.jit(step)  # before the loop; no new lambda, partial or closure within",
    ),
    "unknown": Fix(
        summary="find what differs between the calls",
        how='jax.config.update("jax_explain_cache_misses", True)',
    ),
}


def fix(observation: Observation, kind: str) -> Fix:
    """By the cause; the reference loop's own decay is a line of its workload."""
    workload = observation.target.workload
    if workload is not None and workload.training.schedule == "static":
        return Fix(
            summary="pass the learning rate's decay as an array, not as a static argument",
            how='[training] schedule = "traced"',
            change=Change(workload={"training.schedule": "traced"}),
        )
    return structs.replace(FIXES[kind], change=Change(step={"compiled": "once"}))
