"""A loop that nobody started for perfdoctor; run as a program of its own.

python loops.py REPORT: writes what came of it, as JSON.
"""

import gc
import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

import perfdoctor


@partial(jax.jit, donate_argnums=0)
def update(weights: Any, images: Any) -> tuple[Any, Any]:
    """One step; it was compiled long before it is examined."""
    loss, slope = jax.value_and_grad(lambda w: ((jnp.tanh(images @ w) - 1) ** 2).mean())(weights)
    return weights - 0.1 * slope, loss


def batches() -> Any:
    """Each takes longer to make than the step takes."""
    draw = np.random.default_rng(0)
    while True:
        images = draw.standard_normal((256, 512))
        for _ in range(4):
            images = np.sort(images, axis=-1)[:, ::-1] * 1.01
        yield images.astype(np.float32)


def hooks() -> list[Any]:
    """What could be left behind."""
    from jax._src import api, monitoring, pjit

    own = ("_infer_params", "_get_fastpath_data", "_run_python_pjit", "_python_pjit_helper")
    return [
        [getattr(pjit, name).__qualname__ for name in own if hasattr(pjit, name)],
        str(api._post_hook_state.value),
        len(gc.callbacks),
        len(monitoring.get_event_duration_listeners()),
        len(monitoring.get_event_listeners()),
        jax.config.values["jax_dump_ir_to"],
        jax.config.values["jax_explain_cache_misses"],
        jax.profiler.start_trace.__module__,
        sorted(thread.name for thread in threading.enumerate()),
    ]


def main() -> None:
    """Train, and be examined meanwhile."""
    weights, data = jnp.zeros((512, 512)), batches()
    for _ in range(5):
        weights, loss = update(weights, next(data))
    with perfdoctor.PerformanceListener(every=50, callback=lambda line: None) as listener:
        before, during = hooks(), 0
        diagnosis = listener.diagnose(budget_s=80.0, show=False)  # 40 are too few for both fixes
        refused = perfdoctor.diagnose(show=False)
        until = time.monotonic() + 120
        for batch in listener.batches(data):
            weights, loss = update(weights, batch)
            listener.step(score=loss)
            during += 1
            if diagnosis.done or time.monotonic() > until:
                break
        for _ in range(3):
            weights, loss = update(weights, next(data))
        after = hooks()
        listener.save(Path(sys.argv[1]).with_name("observation.json"))
    told = {
        "done": diagnosis.done,
        "during": during,
        "loss": float(loss),
        "before": before,
        "after": after,
        "children": len(psutil.Process().children(recursive=True)),
        "refused": refused.report().text("json"),
        "report": diagnosis.report().text("json"),
        "page": diagnosis._repr_html_()[:7],
    }
    Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
