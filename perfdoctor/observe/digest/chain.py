"""How many matrix products of a parsed program wait for each other: its depth, not their number."""

from typing import Any

from perfdoctor.observe.digest.elements import RECOMPUTED
from perfdoctor.observe.digest.layers import MANY
from perfdoctor.observe.digest.operations import arguments_of, last, path, trips_of

PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")


class TooLong(Exception):
    """There are more operations than are read."""


class Chain:
    """The products behind each other on the longest way to each value, of the forward pass: experts
    that take the same input, and derivatives that go along with a network, lengthen none.
    """

    def __init__(self, functions: dict[str, Any]) -> None:
        """`functions`: of a module, by their names."""
        self._functions = functions
        self._behind: dict[Any, int] = {}
        self._met = 0

    def longest(self) -> int | None:
        """To any result of the program; None if it has too many operations."""
        main = self._functions["main"]
        try:
            nothing = [0] * len(arguments_of(main))
            return max(self._through(main.regions[0], nothing, forward=True), default=0)
        except TooLong:
            return None

    def _through(self, region: Any, before: list[int], *, forward: bool) -> list[int]:
        """The products behind what a region returns, by those behind its arguments. `forward`:
        whether it is computed once, and before the gradients.
        """
        self._behind |= zip(region.blocks[0].arguments, before, strict=True)
        for each in region.blocks[0].operations:
            operation = each.operation
            self._met += 1
            if self._met > MANY:
                raise TooLong
            taken = [self._behind.get(operand, 0) for operand in operation.operands]
            found = self._results(operation, taken, forward and is_forward(operation))
            self._behind |= zip(operation.results, found, strict=True)
        return [self._behind.get(operand, 0) for operand in last(region).operands]

    def _results(self, operation: Any, taken: list[int], forward: bool) -> list[int]:
        """The products behind each result of an operation."""
        most = max(taken, default=0)
        match operation.name:
            case "func.call":
                callee = self._functions.get(operation.attributes["callee"].value)
                if callee is not None:
                    return self._through(callee.regions[0], taken, forward=forward)
            case "stablehlo.while":
                after = self._through(operation.regions[1], taken, forward=forward)
                trips = trips_of(operation) or 1
                return [
                    one + trips * max(0, other - one)
                    for one, other in zip(taken, after, strict=True)
                ]
            case "stablehlo.case" | "stablehlo.if":
                branches = [self._through(each, [], forward=forward) for each in operation.regions]
                return [max(ways) for ways in zip(*branches, strict=True)]
            case name if name in PRODUCTS and forward:
                most += 1
        return [most] * len(operation.results)


def is_forward(operation: Any) -> bool:
    """Whether jax has not made it for the gradients, or to compute something again."""
    place = path(str(operation.location))
    return "transpose(" not in place and RECOMPUTED not in place
