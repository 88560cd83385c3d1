"""Observations recorded from real runs; see tests/observations/README.md for how."""

from pathlib import Path

import msgspec

from perfdoctor.schema.observation import Observation

FOLDER = Path(__file__).parent / "observations"


def recorded(name: str) -> Observation:
    """The recorded Observation with this name."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Observation)
