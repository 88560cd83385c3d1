"""For any Python loop: `perfdoctor.PerformanceListener`, and where its lines can be written.

Nothing here imports jax; the writers load what they need when they are made.
"""

from perfdoctor.listener.line import Line
from perfdoctor.listener.listener import PerformanceListener
from perfdoctor.listener.tensorboard import TensorBoard
from perfdoctor.listener.writers import Csv, JsonLines, Prometheus

__all__ = ["Csv", "JsonLines", "Line", "PerformanceListener", "Prometheus", "TensorBoard"]
