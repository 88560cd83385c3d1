"""Reads the step's program, as jax dumped it (StableHLO text)."""

import math
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from perfdoctor.observe.digest.chain import Chain
from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.layers import walk
from perfdoctor.observe.digest.operations import below
from perfdoctor.observe.digest.places import Code
from perfdoctor.observe.digest.tables import tables_of
from perfdoctor.schema.program import Argument, Program, bytes_of

NAME = re.compile(r'^loc\("?([^"]*)"?\)$')
"""The name of an argument, as its location has it."""
ROOT = re.compile(r"[\[.]")
"""What divides the name of an argument from those of its parts: params['dense'], batch.image."""
COMPLEX = re.compile(r"complex<(\w+)>")
"""The type of complex numbers: of two real ones each."""
ARGUMENT = re.compile(r"%arg\d+: tensor<((?:\d+x)*)(complex<\w+>|\w+)>")
"""An argument of a function: its sizes, and the type of its elements."""
LOOKED_AT = 50
"""Programs of one name, the newest first, whose arguments are looked at: a function that compiles
again and again has hundreds."""
RANDOM_KEYS = (((2,), "ui32"), ((4,), "ui32"))
"""Shapes and types of the random keys of threefry, and of rbg."""


def read(
    dumps: Path, function: str, code: Code | None = None, argument_bytes: int | None = None
) -> Program | None:
    """The newest program of a function with this name; None if none was dumped.

    `argument_bytes`: what its arguments take, if that is known. A program has functions of one name
    (`step` to train, and `step` to evaluate), and one function has a program for each shape: the
    newest that takes so much is read; if none does, the newest of all.
    """
    files = sorted(dumps.glob(f"jax_ir*_{module_name(function)}_compile.mlir"), reverse=True)
    texts = (file.read_text() for file in files[:LOOKED_AT])
    found = next((text for text in texts if size_of_arguments(text) == argument_bytes), None)
    if found is None and files:
        found = files[0].read_text()
    return parse(found, function, code) if found is not None else None


def size_of_arguments(text: str) -> int:
    """Bytes that the arguments of a module's main function take, told without parsing it."""
    _, _, behind = text.partition("@main(")
    head, _, _ = behind.partition("->")
    return sum(
        bytes_of(dtype, [int(size) for size in shape.split("x") if size])
        for shape, dtype in ARGUMENT.findall(head)
    )


def parse(text: str, function: str, code: Code | None = None) -> Program:
    """A module's text as plain data."""
    with ir.Context() as context:
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        for dialect in (chlo, sdy, stablehlo):
            dialect.register_dialect(context)
        mhlo.register_mhlo_dialect(context)
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        operations: Counter[str] = Counter()
        elements: Counter[str] = Counter()
        count(module.operation, operations, elements)
        seen = walk(module, code)
        main = next(
            operation.operation
            for operation in module.body.operations
            if "sym_name" in operation.attributes
            and operation.attributes["sym_name"].value == "main"
        )
        kind = main.attributes["function_type"].value
        taken = arguments(main, kind, seen.multiplied if seen.is_whole else set())
        return Program(
            function=function,
            arguments=taken,
            results=tuple(shape_and_dtype(each) for each in kind.results if is_tensor(each)),
            operations=dict(operations),
            elements_by_dtype=dict(elements),
            layers=seen.found_layers(),
            chain=Chain(seen.functions).longest(),
            loops=tuple(seen.loops),
            callbacks=tuple(seen.callbacks),
            tables=tables_of(module.operation, taken),
            constant_bytes=constant_bytes(module.operation),
            wide_places=seen.elements.wide_places(),
            recomputed_share=seen.elements.recomputed_share,
            recomputed_places=seen.elements.recomputed_places(),
            is_whole=seen.is_whole,
        )


def count(module: Any, operations: Counter[str], elements: Counter[str]) -> None:
    """Add a module's operations, and how many elements they compute."""
    for inner in below(module):
        operations[inner.name] += 1
        for result in inner.results:
            if is_tensor(result.type):
                shape, dtype = shape_and_dtype(result.type)
                parts = COMPLEX.fullmatch(dtype)  # a complex number is two real ones
                kind, times = (parts[1], 2) if parts else (dtype, 1)
                elements[kind] += times * math.prod(shape)


def constant_bytes(module: Any) -> int:
    """The bytes of the arrays that stand in the program as constants; splats and scalars take no
    space.
    """
    return sum(
        bytes_of(dtype, shape)
        for inner in below(module)
        if inner.name == "stablehlo.constant" and not is_splat(inner)
        for shape, dtype in [shape_and_dtype(inner.results[0].type)]
    )


def is_splat(constant: Any) -> bool:
    """Whether all elements of a constant are the same one, which stands in the program once."""
    try:
        return bool(ir.DenseElementsAttr(constant.attributes["value"]).is_splat)
    except TypeError:  # jaxlib can print complex numbers, but not read them
        return "dense<(" in constant.get_asm(large_elements_limit=1)


def arguments(main: Any, kind: Any, multiplied: set[int]) -> tuple[Argument, ...]:
    """The arrays that the step takes, with the names that jax gave them. Ordered side effects come
    as tokens beside them. `multiplied`: those that a product takes; none if that is not known, as
    of a program that hands all of them to its devices first.
    """
    attributes = main.attributes["arg_attrs"] if "arg_attrs" in main.attributes else ()  # noqa: SIM401
    values = main.regions[0].blocks[0].arguments
    found = []
    for index, (argument, tensor) in enumerate(zip(values, kind.inputs, strict=True)):
        if not is_tensor(tensor):
            continue
        shape, dtype = shape_and_dtype(tensor)
        name = NAME.match(str(argument.location))
        marks = str(attributes[index]) if index < len(attributes) else ""
        donated = "tf.aliasing_output" in marks or "jax.buffer_donor" in marks
        found.append(
            Argument(
                name=name[1] if name else f"argument {index}",
                shape=shape,
                dtype=dtype,
                donated=donated,
                flattened=is_flattened(argument),
                multiplied=not multiplied or index in multiplied,
            )
        )
    return tuple(found)


def is_flattened(argument: Any) -> bool:
    """Whether an array is used by nothing but what takes its first two axes as one."""
    shape, _ = shape_and_dtype(argument.type)
    users = [use.owner for use in argument.uses]
    if len(shape) < 2 or not users:
        return False
    flat = (shape[0] * shape[1], *shape[2:])
    return all(
        user.name == "stablehlo.reshape" and shape_and_dtype(user.results[0].type)[0] == flat
        for user in users
    )


def is_tensor(kind: Any) -> bool:
    """Whether a value of this type is an array, and no token."""
    return isinstance(kind, ir.RankedTensorType)


def shape_and_dtype(tensor: Any) -> tuple[tuple[int, ...], str]:
    """The sizes of a tensor type, and its element type as MLIR names it (f64, i32, ui8)."""
    ranked = ir.RankedTensorType(tensor)
    return tuple(ranked.shape), str(ranked.element_type)


def batch_size(program: Program, devices: int = 1) -> int | None:
    """The leading size that the step's data have in common; None if it can't be told.

    No data are random keys, and the arrays of an argument that differ in it: a network which the
    step only reads. Where the program loops over the leading axis, that is time, or the number of
    microbatches, and the batch is the axis after it. A step under `pmap` has an axis of devices
    before all others. The first two axes count together where the program takes them as one.
    """
    mapped = over_devices(program, devices)
    shapes: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    for argument in program.data:
        shape = argument.shape[mapped:]
        if shape and (shape, argument.dtype) not in RANDOM_KEYS:
            shapes[ROOT.split(argument.name)[0]].append(shape)
    alike = [each for each in shapes.values() if len({shape[0] for shape in each}) == 1]
    size = only({shape[0] for each in alike for shape in each})
    if size in {loop.trips for loop in program.loops}:
        size = only({shape[1] if len(shape) > 1 else size for each in alike for shape in each})
    elif program.flattens:
        size = only({math.prod(shape[:2]) for each in alike for shape in each})
    return size * devices if mapped and size is not None else size


def over_devices(program: Program, devices: int) -> bool:
    """Whether all arguments, the state too, have an axis of devices first, as `pmap` wants."""
    has_state = len(program.data) < len(program.arguments)
    return has_state and all(each.shape[:1] == (devices,) for each in program.arguments)


def only(sizes: set[int]) -> int | None:
    """The one that there is; None if there are several, or none."""
    return next(iter(sizes)) if len(sizes) == 1 else None
