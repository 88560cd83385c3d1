from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec

from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.settings import in_context, settings
from tests.observe.agent.heard import makers


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


def test_a_context_is_seen_in_the_calls_that_are_made_in_it() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    step = made.jit(lambda p: p + 1)
    with jax.disable_jit():
        step(jnp.ones(3))
    assert in_context(settings(jax), prober.settings.values()) == {"jax_disable_jit": True}


def test_what_only_some_calls_have_is_none_of_the_step() -> None:
    everywhere: dict[str, Any] = {"a": 1, "b": 2}
    assert in_context(everywhere, [{"a": 3, "b": 2}, {"a": 1, "b": 2}]) == {}
    assert in_context(everywhere, [{"a": 3, "b": 2}, {"a": 3, "b": 4}]) == {"a": 3}
    assert in_context(everywhere, []) == {}
