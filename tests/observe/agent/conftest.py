"""JAX as the patients of these tests have set it."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def wide() -> Iterator[None]:
    """x64, by the setting that all versions of jax have."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
