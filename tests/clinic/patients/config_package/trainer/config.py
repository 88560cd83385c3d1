"""All settings of a run."""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

import jax


@dataclass(frozen=True)
class Config:
    epochs: int = 1000
    batch_size: int = 128
    learning_rate: float = 1e-3
    width: int = 768
    cells: int = 200_000
    cell_features: int = 64
    records: int = 12_800
    lags: int = 168
    seed: int = 0
    debug: bool = False
    data: Path = Path("data")


def from_command_line() -> Config:
    """Each field is an option."""
    parser = argparse.ArgumentParser(prog="trainer")
    for field in fields(Config):
        if isinstance(field.default, bool):
            parser.add_argument(f"--{field.name}", action="store_true", default=field.default)
        else:
            kind = type(field.default)
            parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    return Config(**vars(parser.parse_args()))


def apply(config: Config) -> None:
    """What concerns JAX as a whole."""
    jax.config.update("jax_debug_nans", config.debug)
    jax.config.update("jax_disable_jit", config.debug)
