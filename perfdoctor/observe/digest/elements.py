"""The elements that a parsed program computes: in double precision, and once more."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from jaxlib.mlir import ir

from perfdoctor.observe.digest.places import Code
from perfdoctor.schema.recording import Frame
from perfdoctor.schema.run import Place

FRAME = re.compile(r'"([^"]*)"\("([^"]*)":(\d+)')
"""A frame in an operation's location: function, file and line."""
RECOMPUTED = "rematted_computation"
"""The name under which jax puts what `jax.checkpoint` computes again."""
NOT_COMPUTED = ("stablehlo.constant", "func.call", "stablehlo.while")
"""Operations whose results are no work of theirs."""
MOST_PLACES = 3
"""Lines that are told of each kind."""


@dataclass
class Elements:
    """Elements of all results, each as often as it is computed, and the lines of some."""

    code: Code
    """Tells the user's own code from that of libraries."""
    total: int = 0
    wide: Counter[Frame] = field(default_factory=Counter)
    """Those of float64 by the line that computes them."""
    again: Counter[Frame | None] = field(default_factory=Counter)
    """Those that are computed once more, by line; None: of no line that is known."""

    def count(self, operation: Any, location: str, times: int, again: bool) -> None:
        """Add the results of an operation that is executed so often; `again`: once more."""
        if operation.name in NOT_COMPUTED:
            return
        for result in written_by(operation):
            if isinstance(result.type, ir.RankedTensorType):
                shape, dtype = ir.RankedTensorType(result.type).shape, str(result.type.element_type)
                count = times * math.prod(shape)
                self.total += count
                if again:
                    self.again[line_of(self.code, location)] += count
                if "f64" in dtype and (frame := line_of(self.code, location)) is not None:
                    self.wide[frame] += count

    @property
    def recomputed_share(self) -> float:
        """Of all, those that are computed once more."""
        return self.again.total() / max(1, self.total)

    def wide_places(self) -> tuple[Place, ...]:
        """The lines that compute most in float64."""
        return places(self.wide)

    def recomputed_places(self) -> tuple[Place, ...]:
        """The lines of which most is computed once more."""
        return places(self.again)


def written_by(operation: Any) -> list[Any]:
    """Its results; of an array that it changes in part, as loops do to stack theirs, that part."""
    if operation.name == "stablehlo.dynamic_update_slice":
        return [operation.operands[1]]
    return list(operation.results)


def line_of(code: Code, location: str) -> Frame | None:
    """The innermost line of the user's own code in an operation's location."""
    frames = [(file, int(line), function) for function, file, line in FRAME.findall(location)]
    return code.own_line(frames) or (frames[0] if frames else None)


def places(counts: Counter[Frame] | Counter[Frame | None]) -> tuple[Place, ...]:
    """The lines that have most of it, with their shares."""
    return tuple(
        Place(function=frame[2], file=frame[0], line=frame[1], share=count / counts.total())
        for frame, count in counts.most_common(MOST_PLACES)
        if frame is not None
    )
