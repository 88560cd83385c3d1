"""Reads single operations of a parsed program: their places, sizes and layers."""

import math
import re
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir

from perfdoctor.schema.program import Layer

PATH = re.compile(r'^loc\("([^"]*)"')
"""The path of names in an operation's location."""


def inside(operation: Any) -> Iterator[Any]:
    """The operations directly inside one."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation


def below(operation: Any) -> Iterator[Any]:
    """All operations inside one, and inside those."""
    for inner in inside(operation):
        yield inner
        yield from below(inner)


def last(region: Any) -> Any:
    """The operation that ends a region: it says what the region returns."""
    operations = region.blocks[0].operations
    return operations[len(operations) - 1]


def arguments_of(function: Any) -> list[Any]:
    """The arguments of a function, as values inside it."""
    return list(function.regions[0].blocks[0].arguments)


def path(location: str) -> str:
    """The path of names that jax gave an operation: jit(step)/jvp()/dot_general."""
    found = PATH.match(location)
    return found[1] if found else ""


def trips_of(loop: Any) -> int | None:
    """How often a loop runs, if that is a constant which its condition compares with."""
    for inner in inside_condition(loop):
        if inner.name == "stablehlo.constant":
            try:
                return int(ir.DenseIntElementsAttr(inner.attributes["value"])[0])
            except (ValueError, IndexError, TypeError):
                continue
    return None


def inside_condition(loop: Any) -> Iterator[Any]:
    """The operations of a loop's condition."""
    for block in loop.regions[0].blocks:
        for inner in block.operations:
            yield inner.operation


def sizes(value: Any) -> list[int]:
    """The shape of a tensor."""
    return list(ir.RankedTensorType(value.type).shape)


def precision(operation: Any) -> str:
    """The precision that was asked for."""
    if "precision_config" not in operation.attributes:
        return "DEFAULT"
    found = re.findall(r"HIGHEST|HIGH", str(operation.attributes["precision_config"]))
    return max(found, key=len, default="DEFAULT")


def convolution(operation: Any) -> Layer:
    """A convolution as a layer executed once."""
    numbers = operation.attributes["dimension_numbers"]
    text = str(numbers)
    kernel_letters = re.search(r"x\[([^\]]*)\]", text)
    letters = [letter.strip() for letter in kernel_letters[1].split(",")] if kernel_letters else []
    kernel = sizes(operation.operands[1])
    result = operation.results[0]
    outputs = kernel[letters.index("o")]
    inputs = kernel[letters.index("i")]
    window = tuple(size for size, letter in zip(kernel, letters, strict=True) if letter.isdigit())
    rows = math.prod(sizes(result)) // max(1, outputs)
    return Layer(
        kind="convolution",
        function="",
        file="",
        line=0,
        written=1,
        executed=1,
        flops=2.0 * rows * outputs * inputs * math.prod(window),
        rows=rows,
        inputs=inputs,
        outputs=outputs,
        kernel=window,
        dtype=str(result.type.element_type),
        precision=precision(operation),
    )


def product(operation: Any, weights_first: bool) -> Layer:
    """A matrix product as a layer executed once."""
    dims = re.findall(r"(\w+)_dimensions = \[([^\]]*)\]", dimension_numbers(operation))
    numbers = {name: [int(n) for n in text.split(",") if n.strip()] for name, text in dims}
    left, right = (sizes(operand) for operand in list(operation.operands)[:2])
    batch = math.prod(left[i] for i in numbers.get("lhs_batching", ()))
    summed = math.prod(left[i] for i in numbers.get("lhs_contracting", ()))
    taken = {*numbers.get("lhs_batching", ()), *numbers.get("lhs_contracting", ())}
    free_left = math.prod(size for i, size in enumerate(left) if i not in taken)
    taken = {*numbers.get("rhs_batching", ()), *numbers.get("rhs_contracting", ())}
    free_right = math.prod(size for i, size in enumerate(right) if i not in taken)
    rows, outputs = free_left, free_right
    if weights_first:
        rows, outputs = free_right, free_left
    return Layer(
        kind="product",
        function="",
        file="",
        line=0,
        written=1,
        executed=1,
        flops=2.0 * batch * free_left * free_right * summed,
        rows=rows,
        inputs=summed,
        outputs=outputs,
        dtype=str(operation.results[0].type.element_type),
        precision=precision(operation),
    )


def dimension_numbers(operation: Any) -> str:
    """The dimension numbers of a product, as text: lhs_batching_dimensions = [0], …"""
    return str(operation.attributes["dot_dimension_numbers"])
