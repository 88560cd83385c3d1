"""The layers, loops and callbacks of a parsed program: what is multiplied, where, how often."""

import re
from collections import ChainMap
from dataclasses import dataclass, field
from typing import Any

from jaxlib.mlir import ir

from perfdoctor.observe.digest.elements import RECOMPUTED, Elements, line_of
from perfdoctor.observe.digest.operations import (
    arguments_of,
    convolution,
    inside,
    last,
    path,
    product,
    sizes,
    trips_of,
)
from perfdoctor.observe.digest.places import Code
from perfdoctor.schema.program import Callback, Layer, Loop
from perfdoctor.schema.recording import Frame

CALLBACK = re.compile(r"callback")
"""A part of the name of each target that calls back to Python."""
PASSED_ON = (
    "stablehlo.convert",
    "stablehlo.transpose",
    "stablehlo.reshape",
    "stablehlo.broadcast_in_dim",
    "stablehlo.slice",
    "stablehlo.dynamic_slice",
)
"""Operations through which weights reach a product unchanged but for type and layout; slices, since
weights of equal layers may be stacked."""
MOST = 100
"""Layers kept, the costliest first."""
MANY = 200_000
"""Operations after which the walk ends: calls inside calls could multiply without end. Reading so
many takes some seconds."""
TOO_MANY = (
    f"the program has more than {MANY:,} operations, counting those of a function at each of its "
    "calls; layers, loops and callbacks behind the first of them were not read"
)
"""Why not all of a program was read."""


@dataclass
class Walk:
    """What was met on one way through a program, from its main function into all that it calls."""

    functions: dict[str, Any]
    code: Code = field(default_factory=Code)
    """Tells the user's own code from that of libraries."""
    handed: dict[Any, Any] = field(default_factory=dict)
    """By argument of a function or of a loop's body: the value that it has outside."""
    met: int = 0
    layers: dict[tuple[str, Layer], list[int]] = field(default_factory=dict)
    """By its place in the program and itself: how often it is executed, for each time written."""
    loops: dict[Loop, None] = field(default_factory=dict)
    callbacks: dict[Callback, None] = field(default_factory=dict)
    multiplied: set[int] = field(default_factory=set)
    """The numbers of the program's arguments that a matrix product takes."""

    def __post_init__(self) -> None:
        self.elements = Elements(self.code)

    @property
    def is_whole(self) -> bool:
        """Whether it came to the program's end."""
        return self.met <= MANY

    def through(self, operation: Any, times: int, backward: bool, again: bool = False) -> None:
        """Visit all operations inside this one, which is executed so often; `again`: once more."""
        for inner in inside(operation):
            self.met += 1
            if not self.is_whole:
                return
            location = str(inner.location)
            behind = backward or "transpose(" in path(location)
            once_more = again or RECOMPUTED in path(location)
            match inner.name:
                case "func.call":
                    callee = self.functions.get(inner.attributes["callee"].value)
                    if callee is not None:
                        self.handed |= zip(arguments_of(callee), inner.operands, strict=True)
                        self.through(callee, times, behind, once_more)
                case "stablehlo.while":
                    self.loop(inner, location, times, behind, once_more)
                case "stablehlo.convolution" | "stablehlo.dot_general" if not behind:
                    layer = convolution(inner) if "conv" in inner.name else self.product(inner)
                    self.layers.setdefault((location, layer), []).append(times)
                case "stablehlo.custom_call":
                    self.call(inner, location)
                case _:
                    self.through(inner, times, behind, once_more)
            self.elements.count(inner, location, times, once_more)

    def loop(self, operation: Any, location: str, times: int, backward: bool, again: bool) -> None:
        """A loop: its body is executed once for each trip."""
        trips = trips_of(operation)
        frame = self.line_of(location)
        if trips is not None and frame is not None and not backward:
            file, line, function = frame
            self.loops[Loop(trips=trips, function=function, file=file, line=line)] = None
        body = operation.regions[1]
        carried = zip(
            body.blocks[0].arguments, operation.operands, last(body).operands, strict=True
        )
        self.handed |= {one: before for one, before, after in carried if one == after}
        self.through(operation, times * (trips or 1), backward, again)

    def product(self, operation: Any) -> Layer:
        """A matrix product as a layer. The weights are what is an argument; of two, what a result
        of the program replaces; else what has fewer axes.
        """
        left, right = list(operation.operands)[:2]
        first, second = self.argument_of(left), self.argument_of(right)
        self.multiplied |= {
            ir.BlockArgument(each).arg_number for each in (first, second) if each is not None
        }
        is_left, is_right = first is not None, second is not None
        if is_left and is_right:
            is_left, is_right = self.is_replaced(first), self.is_replaced(second)
        alike = is_left == is_right
        return product(operation, len(sizes(left)) < len(sizes(right)) if alike else is_left)

    def is_replaced(self, argument: Any) -> bool:
        """Whether an argument is state of a step that trains: the program returns something of its
        shape and type, and of most of its arguments'.
        """
        main = self.functions["main"]
        returned = {str(each.type) for each in last(main.regions[0]).operands}
        replaced = [str(each.type) in returned for each in arguments_of(main)]
        return 2 * sum(replaced) >= len(replaced) and str(argument.type) in returned

    def argument_of(self, value: Any) -> Any | None:
        """The argument of the program that a value is, but for its type and layout."""
        handed = ChainMap[Any, Any]({}, self.handed)
        while True:
            owner = value.owner
            if value in handed:
                value = handed[value]
            elif isinstance(owner, ir.Block):
                is_own = owner == self.functions["main"].regions[0].blocks[0]
                return value if is_own else None
            elif owner.name in PASSED_ON:
                value = owner.operands[0]
            elif owner.name == "func.call":
                callee = self.functions[owner.attributes["callee"].value]
                handed.update(zip(arguments_of(callee), owner.operands, strict=True))
                value = last(callee.regions[0]).operands[ir.OpResult(value).result_number]
            else:
                return None

    def call(self, operation: Any, location: str) -> None:
        """A call out of the program: to Python, or to a library."""
        target = operation.attributes["call_target_name"].value
        frame = self.line_of(location)
        if CALLBACK.search(target) and frame is not None:
            file, line, function = frame
            kind = path(location).rpartition("/")[2].rstrip(":") or "callback"
            self.callbacks[Callback(kind=kind, function=function, file=file, line=line)] = None

    def line_of(self, location: str) -> Frame | None:
        """The innermost line of the user's own code in an operation's location."""
        return line_of(self.code, location)

    def found_layers(self) -> tuple[Layer, ...]:
        """The layers with their counts, the costliest first."""
        found = []
        for (location, layer), times in self.layers.items():
            file, line, function = self.line_of(location) or ("", 0, "")
            counts = {"written": len(times), "executed": sum(times)}
            fields = {name: getattr(layer, name) for name in layer.__struct_fields__}
            fields |= counts | {"flops": layer.flops * sum(times)}
            fields |= {"file": file, "line": line, "function": function}
            found.append(Layer(**fields))
        return tuple(sorted(found, key=lambda layer: -layer.flops)[:MOST])


def walk(module: Any, code: Code | None = None) -> Walk:
    """One way through a module."""
    functions = {
        operation.operation.attributes["sym_name"].value: operation.operation
        for operation in module.body.operations
        if "sym_name" in operation.operation.attributes
    }
    seen = Walk(functions, code or Code())
    seen.through(functions["main"], 1, backward=False)
    return seen
