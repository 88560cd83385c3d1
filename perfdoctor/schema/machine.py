"""This machine as the checks see it, without a run: what `perfdoctor env` shows."""

from msgspec import Struct

from perfdoctor.schema.run import Failure
from perfdoctor.schema.surroundings import Backend, Gpu, Host, Libraries


class Machine(Struct, frozen=True, kw_only=True):
    """See `Observation` for the meaning of the parts."""

    host: Host
    gpus: tuple[Gpu, ...]
    libraries: Libraries
    environment: dict[str, str]
    backend: Backend | None
    failure: Failure | None
