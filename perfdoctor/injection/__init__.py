"""Puts code of ours into a Python program that is otherwise run exactly as without it.

The program is started as `python train.py …`, by the interpreter itself. Only its environment names
a folder more, with a `sitecustomize` that takes that back and then waits for the import of jax:
`__main__`, `sys.path`, `sys.argv` and the environment are as without us when its first line runs.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "at_start"
"""The folder with our `sitecustomize`."""
PATH, ORDERS = "PYTHONPATH", "PERFDOCTOR_ORDERS"
"""Environment variables: Python's search path, and what the injected code is to do."""


def injected(env: Mapping[str, str], module: str, **orders: Any) -> dict[str, str]:
    """An environment in which `module.attach(jax, orders)` is called as soon as jax is imported.

    `orders["folder"]`: where the injected code leaves what it has to say.
    """
    path = os.pathsep.join([str(FOLDER), *([env[PATH]] if env.get(PATH) else [])])
    return {**env, PATH: path, ORDERS: json.dumps({"module": module, **orders})}
