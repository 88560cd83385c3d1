"""Sits in a script that is observed, beside the agent, and counts its jitted calls."""

from typing import Any

from perfdoctor.observe.agent import watch
from perfdoctor.protocol import Orders
from perfdoctor.trials import inside

NO_CHANGE = {"function": "", "settings": {}, "freeze": False, "skip_collect": False, "cores": None}


def attach(jax: Any, orders: Orders) -> None:
    """Called once the script has imported jax."""
    inside.attach(jax, {**orders, **NO_CHANGE})
    watch.attach(jax, orders)
