"""Aids for debugging that are switched on, and how each is switched off."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdoctor import Change, Fix, Observation, Scalar, Setting, set_variables
from perfdoctor_checks._aids import (
    CHECKED,
    CHECKIFY,
    COSTLY,
    DUMP_FLAG,
    LEAKS,
    NO_JIT,
    OFF,
    PYTHON,
    SLOW_FLAG,
    WHILE_COMPILING,
)
from perfdoctor_checks._limits import MOSTLY
from perfdoctor_checks._repeats import repeats_of

ALLOWED = "allow"
"""The value of a transfer guard that is off."""


@dataclass(frozen=True)
class Aid:
    """Something that is switched on."""

    name: str
    value: str
    source: str
    effect: str | None
    """What it does to each step; None: it costs only while something is compiled."""
    removed: tuple[str, str | None] | None = None
    """The environment variable that switches it off, and its new value."""


def summary(found: list[Aid]) -> str:
    """What is on, and what the costliest does."""
    names = ", ".join(dict.fromkeys(aid.name for aid in found))
    effect = found[0].effect or "it costs while something is compiled, not after"
    return f"{names} {'is' if len(found) == 1 else 'are'} on: {effect}"


def from_settings(settings: tuple[Setting, ...]) -> list[Aid]:
    """JAX's own."""
    return [
        Aid(
            name=each.name,
            value=str(each.value),
            source=f"set in the {each.origin}",
            effect=COSTLY.get(each.name),
            removed=(each.name.upper(), None) if each.origin == "environment" else None,
        )
        for each in settings
        if each.name in (*COSTLY, *WHILE_COMPILING) and each.value not in OFF
    ]


def with_compiling(observation: Observation, found: Sequence[Aid]) -> list[Aid]:
    """The same; of the search for leaks, what it has jax do in each step, if the timed steps mostly
    compiled, and mostly functions of jax's own, whose repeats jax does not explain.
    """
    calls = observation.calls
    repeats = repeats_of(observation.compiles or ())
    spent = {name: sum(one.seconds for one in each) for name, each in repeats.items()}
    unexplained = {name: spent[name] for name, each in repeats.items() if not each[-1].reason}
    is_most = sum(unexplained.values()) >= MOSTLY * sum(spent.values())
    if calls is None or not unexplained or not is_most:
        return list(found)
    share, worst = calls.compiling_ms / calls.time_ms, max(unexplained, key=unexplained.__getitem__)
    if share < MOSTLY:
        return list(found)
    effect = f"{share:.0%} of the steps' time jax compiles functions of its own again ({worst})"
    return [replace(aid, effect=effect) if aid.name == LEAKS else aid for aid in found]


def from_python(observation: Observation) -> list[Aid]:
    """Development mode, traced or checked allocations."""
    env = observation.environment
    effect = "each allocation of Python is checked or recorded"
    return [
        Aid(name, env[name], "the environment", effect, (name, None))
        for name, on in PYTHON.items()
        if name in env and on.fullmatch(env[name])
    ]


def from_xla(observation: Observation) -> list[Aid]:
    """Flags in XLA_FLAGS; the others stay as they are."""
    flags = observation.environment.get("XLA_FLAGS", "").split()
    slow = [flag for flag in flags if SLOW_FLAG.fullmatch(flag)]
    dump = [flag for flag in flags if DUMP_FLAG.fullmatch(flag) and flag not in slow]
    rest = " ".join(flag for flag in flags if flag not in [*slow, *dump]) or None
    effect = "each execution is slowed"
    return [
        Aid(*named(flag), "XLA_FLAGS", effect if flag in slow else None, ("XLA_FLAGS", rest))
        for flag in [*slow, *dump]
    ]


def named(flag: str) -> tuple[str, str]:
    """A flag's name and value."""
    name, _, value = flag.partition("=")
    return name, value or "true"


def from_checkify(observation: Observation) -> list[Aid]:
    """Functions of the step that check themselves."""
    calls = observation.calls.calls if observation.calls else ()
    names = dict.fromkeys(call.function for call in calls if call.is_checked)
    return [Aid(CHECKIFY, ", ".join(names), "the calls", CHECKED)] if names else []


def dumps(observation: Observation) -> list[Aid]:
    """JAX_DUMP_IR_TO; jax.config does not tell, since the observation dumps too."""
    folder = observation.environment.get("JAX_DUMP_IR_TO")
    if not folder:
        return []
    return [Aid("JAX_DUMP_IR_TO", folder, "the environment", None, ("JAX_DUMP_IR_TO", None))]


def fix(observation: Observation, found: list[Aid]) -> Fix:
    """All off; a trial only where a step may get faster by it."""
    env = dict(aid.removed for aid in found if aid.removed)
    names = {aid.name for aid in found}
    in_code = [aid for aid in found if aid.removed is None and aid.name != CHECKIFY]
    settings: dict[str, Scalar] = {}
    if observation.target.runs_users_code:
        settings = {aid.name: off(aid.name) for aid in in_code if aid.effect}
    step: dict[str, Scalar] = {}
    if NO_JIT in names:
        step = {"jitted": "whole"}
    elif CHECKIFY in names:
        step = {"program": "unchecked"}
    worth_trying = bool(settings or step) or any(aid.effect for aid in found if aid.removed)
    lines = [line(observation, name, value) for name, value in env.items()]
    lines += [f'remove jax.config.update("{aid.name}", …){context(aid)}' for aid in in_code]
    lines += ["call the function itself, without checkify.checkify"] if CHECKIFY in names else []
    return Fix(
        summary="switch it off, and on again to look for an error",
        how="; ".join(lines),
        change=Change(env=env, settings=settings, step=step) if worth_trying else None,
    )


def context(aid: Aid) -> str:
    """The other way to switch it on."""
    return ", or `with jax.disable_jit():`" if aid.name == NO_JIT else ""


def off(name: str) -> bool | str:
    """The value of a setting that is off."""
    return ALLOWED if name.startswith("jax_transfer_guard") else False


def line(observation: Observation, name: str, value: str | None) -> str:
    """The line that sets or unsets a variable."""
    workload = observation.target.workload
    if workload is not None and name in workload.process.env:
        return f"[process] env: {name} = {value!r}" if value else f"[process] env without {name}"
    return set_variables(observation, {name: value})
