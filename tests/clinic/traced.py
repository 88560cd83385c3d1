"""Traces a script as a user of XProf would, in the middle of its training; put into it from outside
(`perfdoctor.injection`), since the script must not know.
"""

import threading
import time
from pathlib import Path
from typing import Any

DONE = "done"


def attach(jax: Any, orders: dict[str, Any]) -> None:
    """Called once the script has imported jax."""
    threading.Thread(target=trace, args=(jax, orders), daemon=True).start()


def trace(jax: Any, orders: dict[str, Any]) -> None:
    """Wait until it trains, and profile it for a while with JAX's defaults."""
    folder = Path(orders["folder"])
    time.sleep(orders["after_s"])
    jax.profiler.start_trace(str(folder))
    time.sleep(orders["window_s"])
    jax.profiler.stop_trace()
    (folder / DONE).touch()
