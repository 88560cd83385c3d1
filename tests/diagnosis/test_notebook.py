"""A notebook, executed: its loop is examined, and the report is in its output."""

import importlib
from typing import Any

from nbclient import NotebookClient

SET_UP = """
import time
import jax, jax.numpy as jnp, numpy as np
from perfdoctor import PerformanceListener

@jax.jit
def step(weights, images):
    loss, slope = jax.value_and_grad(lambda w: ((jnp.tanh(images @ w) - 1) ** 2).mean())(weights)
    return weights - 0.1 * slope, loss

def load():
    draw = np.random.default_rng(0)
    while True:
        images = draw.standard_normal((256, 512))
        for _ in range(4):
            images = np.sort(images, axis=-1)[:, ::-1] * 1.01
        yield images.astype(np.float32)

weights = jnp.zeros((512, 512))
weights, loss = step(weights, next(load()))
listener = PerformanceListener(batch_size=256, every=100)
"""
LOOP = """
diagnosis = listener.diagnose(budget_s=40)
until = time.monotonic() + 80
for batch in listener.batches(load()):
    weights, loss = step(weights, batch)
    listener.step(score=loss)
    if diagnosis.done or time.monotonic() > until:
        break
"""
SHOW = "listener.report()"
LIMIT_S = 180


def html_of(cell: Any) -> str:
    """What it shows as HTML."""
    return "".join(each["data"].get("text/html", "") for each in cell["outputs"] if "data" in each)


def test_the_report_is_in_the_notebook() -> None:
    v4: Any = importlib.import_module("nbformat").v4
    cells = [v4.new_code_cell(source) for source in (SET_UP, LOOP, SHOW)]
    notebook = v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3").execute()
    _, loop, shown = notebook.cells
    lines = "".join(each.get("text", "") for each in loop["outputs"])
    assert "ETL: " in lines and "samples/sec: " in lines
    for cell in (loop, shown):  # written over when it was ready; and as the value of a cell
        page = html_of(cell)
        assert "<iframe" in page and "srcdoc" in page
        assert "etl" in page and "load" in page, page[-3000:]
