"""What the digest makes of a recording: the parts of an Observation that need jaxlib to be read."""

from msgspec import Struct

from perfdoctor.schema.figures import Excerpt
from perfdoctor.schema.program import Executable, Program, StepCost
from perfdoctor.schema.run import Compile, Garbage
from perfdoctor.schema.steps import Steps


class Digest(Struct, frozen=True, kw_only=True):
    """See `Observation` for the meaning of the parts."""

    compiles: tuple[Compile, ...]
    garbage: Garbage | None
    steps: Steps | None
    timeline: Excerpt | None = None
    program: Program | None
    executable: Executable | None
    cost: StepCost | None = None
    not_measured: dict[str, str] = {}
    """Why a part is None, or not whole."""
    next_window_s: float | None = None
    """Where the window showed too little: how long the next one should be."""
    is_step_known: bool = False
    """Whether the steps are those whose calls were timed and probed."""
