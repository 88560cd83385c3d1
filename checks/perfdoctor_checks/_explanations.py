"""What JAX says of a cache miss (`jax_explain_cache_misses`), as a kind of cause and in words."""

import re
from itertools import takewhile
from pathlib import Path

from perfdoctor import Fix, place

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
WORDS = re.compile(r"[\w.+-]+|\W")
"""What JAX writes, version by version, of arguments whose types changed (TYPES), of static
arguments, of trees with other keys, and of settings; the parts of these texts that are shown
otherwise; and their words."""


def explained(reason: str | None) -> tuple[str, str]:
    """JAX's explanation as a kind of cause, and in words."""
    text = reason or ""
    defined = DEFINED.search(text)
    if changes := STATIC.findall(text):
        if defined and "equinox" in Path(defined[1]).parts:
            old, new = differing(changes[0][2], changes[0][1])
            return "value", f"a Python value among its arguments: {cut(old)} -> {cut(new)}"
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
    if max(len(old), len(new)) > LENGTH:
        old, new = differing(old, new)
    return f"{name}: {cut(old)} -> {cut(new)}"


def differing(old: str, new: str) -> tuple[str, str]:
    """Of two texts, the words in which they differ, from the first one to the last."""
    olds, news = WORDS.findall(old), WORDS.findall(new)
    first = alike(olds, news)
    last = alike(olds[first:][::-1], news[first:][::-1])
    return "".join(olds[first : len(olds) - last]), "".join(news[first : len(news) - last])


def alike(one: list[str], other: list[str]) -> int:
    """With how many of the same words both begin."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def cut(text: str) -> str:
    """A text, shortened to what a summary can bear."""
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


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
    "value": Fix(
        summary="pass what changes as an array: equinox compiles for each new Python value",
        how="step(model, jnp.asarray(value))  # in place of a float, an int or a str",
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
"""What to do about each kind of cause."""
