from types import SimpleNamespace
from typing import Any

import jax
import msgspec

from perfdoctor.observe.agent.settings import settings


def jax_with(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(values=values))


def test_plain_values_are_kept() -> None:
    values = {"a": True, "b": 1, "c": 0.5, "d": "highest", "e": None}
    assert settings(jax_with(**values)) == values


def test_what_json_cannot_hold_is_left_out() -> None:
    assert settings(jax_with(a=object(), b=("x",), c=1)) == {"c": 1}


def test_settings_that_the_observation_makes_are_left_out() -> None:
    ours = jax_with(jax_explain_cache_misses=True, jax_dump_ir_to="x", jax_dump_ir_modes="y")
    assert settings(ours) == {}


def test_settings_of_the_installed_jax() -> None:
    found = settings(jax)
    assert isinstance(found["jax_enable_x64"], bool)
    assert "jax_explain_cache_misses" not in found
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
