"""What the digest makes of a recording: the parts of an Observation that need jaxlib to be read."""

from msgspec import Struct

from perfdoctor.schema.program import Executable, Program
from perfdoctor.schema.run import Compile, Garbage, Steps


class Digest(Struct, frozen=True, kw_only=True):
    """See `Observation` for the meaning of the parts."""

    compiles: tuple[Compile, ...]
    garbage: Garbage | None
    steps: Steps | None
    program: Program | None
    executable: Executable | None
    not_measured: dict[str, str] = {}
    """Why a part is None."""
    next_window_s: float | None = None
    """Where the window showed too little: how long the next one should be."""
    is_step_known: bool = False
    """Whether the steps are those whose calls were timed and probed."""
