"""What the probe writes, a line of JSON for each thing that it learns."""

from typing import Literal

from msgspec import Struct

from perfdoctor.schema.surroundings import Backend


class ProbeLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Either a stage that begins, or the end: the backend, or what was raised."""

    stage: Literal["import", "devices"] | None = None
    backend: Backend | None = None
    settings: dict[str, bool | int | float | str | None] = {}
    raised: str | None = None
