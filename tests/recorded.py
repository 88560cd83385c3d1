"""Observations recorded from real runs; see tests/observations/README.md for how."""

from pathlib import Path

import msgspec

from perfdoctor.schema.observation import Observation

FOLDER = Path(__file__).parent / "observations"


def saved(name: str) -> Path:
    """Where the Observation with this name lies."""
    return FOLDER / f"{name}.json"


def recorded(name: str) -> Observation:
    """The recorded Observation with this name."""
    return msgspec.json.decode(saved(name).read_bytes(), type=Observation)
