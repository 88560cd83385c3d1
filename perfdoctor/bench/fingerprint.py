"""The machine, as far as it decides whether the numbers of two times can be compared."""

import os
from collections.abc import Mapping

import msgspec

from perfdoctor.observe.gpu import gpus
from perfdoctor.observe.host import host
from perfdoctor.observe.libraries import environment, libraries
from perfdoctor.schema.benchmark import Fingerprint


def fingerprint(env: Mapping[str, str] = os.environ) -> Fingerprint:
    """What this machine is, with a target's environment."""
    here, installed, cards = host(), libraries(), gpus()
    python = ".".join(installed.python.split(".")[:2])
    return Fingerprint(
        cpu=here.cpu_model,
        cores=here.usable_cores,
        vector_sets=here.cpu_flags,
        accelerators=tuple(card.name for card in cards) or installed.accelerators,
        driver=cards[0].driver if cards else None,
        python=python,
        jaxlib=installed.packages.get("jaxlib", "not installed"),
        variables=environment(env),
    )


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs, each in words; nothing if numbers of both can be compared."""
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(now)
    changed = [name for name in old if old[name] != new[name]]
    return [f"{name} {told(old[name])}, here {told(new[name])}" for name in changed]


def told(value: object) -> str:
    """A part of a fingerprint, in words."""
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return "none" if value is None else str(value)
