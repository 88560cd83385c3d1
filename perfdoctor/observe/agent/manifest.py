"""What a capture's folder says of the program: its manifest, and what its code has set."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.schema.capture import (
    MANIFEST,
    Capture,
)

OWN_FILES.add(__file__)
OF_THE_ENVIRONMENT = re.compile(r"^(XLA|JAX|TF|MALLOC|OMP|MKL|OPENBLAS|NPROC|CUDA|NCCL|LD_)")
"""Environment variables that bear on how a program computes."""


def write_manifest(folder: Path, capture: Capture) -> None:
    """It comes last, and is renamed: whoever sees it sees all."""
    beside = folder / f"{MANIFEST}.part"
    beside.write_bytes(msgspec.json.encode(capture))
    beside.rename(folder / MANIFEST)


def made_in_code(before: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that bear on performance which the program's code has set, and removed."""
    here = dict(os.environ)
    named = [name for name in {*here, *before} if OF_THE_ENVIRONMENT.match(name)]
    made = {name: here[name] for name in named if here.get(name) not in (None, before.get(name))}
    return made, tuple(name for name in named if name not in here)
