"""A user's workload object: what it is made of, and how its loop is to be run."""

from msgspec import Struct

from perfdoctor.schema.fix import Change


class Parts(Struct, frozen=True, kw_only=True):
    """What a workload object offers, as the process found it that runs it."""

    batch_size: int | None = None
    """Examples of a batch; None: its arrays have no first axis in common."""
    takes_batch_size: bool = False
    """Whether `batches(batch_size=…)` makes batches of another size."""
    is_jitted: bool = False
    """Whether `step` is what `jax.jit` returned."""
    hands_over_again: bool = False
    """Whether host arrays come with each step that are no new data: a state that the step has
    fetched, or arrays that are the same in each batch."""


class Orders(Struct, frozen=True, kw_only=True):
    """What the process that runs the loop is told."""

    name: str
    """package.module:name."""
    told: str
    """The file to which it writes what it has to tell."""
    change: Change = Change()
    """What is different from the loop as it is."""


class Told(Struct, frozen=True, kw_only=True):
    """What that process has to tell of the object."""

    parts: Parts | None = None
    refused: str | None = None
    """Why it is no workload, as a sentence for the user."""
