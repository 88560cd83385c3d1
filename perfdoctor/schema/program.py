"""The training step as a program: what JAX lowered and XLA compiled.

Times are in the unit that the field's name says.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Literal

from msgspec import Struct

from perfdoctor.schema.run import Place

BITS = re.compile(r"\d+")
"""The first number in the name of a type: the bits of an element, 8 of f8E4M3FN."""


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """The bytes of an array; its type as XLA or MLIR names it: f32, bf16, i1, f8E4M3FN, pred; one
    of fewer than eight bits takes a byte for each element.
    """
    bits = BITS.search(dtype)
    parts = 2 if dtype.startswith("complex<") else 1  # MLIR's complex<f32>; numpy's complex64
    return parts * prod(shape) * max(8, int(bits[0]) if bits else 8) // 8


class Argument(Struct, frozen=True, kw_only=True):
    """An argument of the compiled step."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    donated: bool
    flattened: bool = False
    """Whether all that the program does with it is to take its first two axes as one: they are
    examples together, such as steps in each of several worlds."""
    multiplied: bool = True
    """Whether a matrix product takes it, unchanged but for type and layout: no optimizer's state of
    weights is. Also where that was not told."""

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        return bytes_of(self.dtype, self.shape)


class Layer(Struct, frozen=True, kw_only=True):
    """A convolution or matrix product of the forward pass, with all like it from the same line."""

    kind: Literal["convolution", "product"]
    function: str
    file: str
    line: int
    written: int
    """How often it stands in the program: above 1, it was written in a Python loop."""
    executed: int
    """How often it is computed a step, trips of its loops included."""
    flops: float
    """A step, all of them together; a multiplication with its addition counts 2."""
    rows: int
    """Results that share the weights: examples, positions, pixels; of each expert, its own."""
    inputs: int
    """Features or channels that are summed over."""
    outputs: int
    """Features or channels computed."""
    kernel: tuple[int, ...] = ()
    """Sizes of a convolution's window."""
    dtype: str
    precision: str = "DEFAULT"
    """DEFAULT, HIGH or HIGHEST."""


class Table(Struct, frozen=True, kw_only=True):
    """An array among the arguments, of which the program looks up rows."""

    shape: tuple[int, ...]
    looked_up: int
    """Rows that it reads, if each lookup that is written is made once."""
    computed: int
    """Operations of arithmetic on arrays of the whole shape."""


class Loop(Struct, frozen=True, kw_only=True):
    """A loop that the program holds as one (`lax.scan`, `fori_loop`), with a fixed length."""

    trips: int
    function: str
    file: str
    line: int


class Callback(Struct, frozen=True, kw_only=True):
    """A call from the program back to Python."""

    kind: str
    """pure_callback, io_callback, debug_callback, debug_print"""
    function: str
    file: str
    line: int


class Program(Struct, frozen=True, kw_only=True):
    """The step as lowered to StableHLO."""

    function: str
    arguments: tuple[Argument, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]
    operations: dict[str, int]
    """How often each operation occurs."""
    elements_by_dtype: dict[str, int]
    """Elements computed in one pass over the program's text, by the type of the result."""
    layers: tuple[Layer, ...] = ()
    """Layers of the forward pass, the costliest first."""
    chain: int | None = None
    """Products of the forward pass that wait for each other, on the longest way to a result; None:
    not told."""
    loops: tuple[Loop, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    tables: tuple[Table, ...] = ()
    constant_bytes: int = 0
    """Bytes of the arrays that are part of the program's text."""
    wide_places: tuple[Place, ...] = ()
    """The user's lines that compute in float64, by their share of these elements."""
    recomputed_share: float = 0.0
    """Of the elements that it computes, those that `jax.checkpoint` has it compute again."""
    recomputed_places: tuple[Place, ...] = ()
    """The user's lines that compute them, by their share."""
    is_whole: bool = True
    """Whether all of it was read for `layers`, `loops`, `callbacks`, `wide_places` and what is
    recomputed; if not, the Observation's `not_measured` says so under `layers`."""

    @property
    def data(self) -> tuple[Argument, ...]:
        """The arguments that no result replaces: state has a result of its shape and type."""
        replaced = Counter(self.results)
        found = []
        for argument in self.arguments:
            kind = (argument.shape, argument.dtype)
            if replaced[kind]:
                replaced[kind] -= 1
            else:
                found.append(argument)
        return tuple(found)

    @property
    def flattens(self) -> bool:
        """Whether the first two axes of all data that have some are taken as one."""
        data = [each for each in self.data if len(each.shape) > 1]
        return bool(data) and all(each.flattened for each in data)

    def of_batch(self, size: int) -> tuple[Argument, ...]:
        """The data that have a place for each example: along their first axis; if none has, along
        the second, behind time or microbatches; else both together, the first one for devices.
        """
        for first, last in ((0, 1), (1, 2), (0, 2)):
            found = [
                each
                for each in self.data
                if len(each.shape) >= last and prod(each.shape[first:last]) == size
            ]
            if found:
                break
        return tuple(found)


class Executable(Struct, frozen=True, kw_only=True):
    """The step as XLA compiled it, by its own accounts."""

    flops: float | None
    bytes_accessed: float | None
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    """Bytes of the results that are written into the buffers of donated arguments."""
    temp_bytes: int
    custom_calls: dict[str, int]
    """How often each target is called: __cudnn$convForward, xla_ffi_python_cpu_callback, …"""
    copied_bytes: int
    """Bytes that plain copies write in a step."""
    axis_shares: dict[int, float] = {}
    """By the length of an axis, if it is over 2048: of the time of all operations, the share of
    those that read or write an array with such an axis; told where a trace names operations."""
    hlo: str = ""
    """Hash of the optimised program without what names files and lines."""


class StepCost(Struct, frozen=True, kw_only=True):
    """What XLA says of all programs that a step runs, together."""

    programs: int
    """Runs of a program in a step: a function that a step calls twice counts twice."""
    flops: float | None
    """The sum over them; None if XLA does not tell it of each."""
    bytes_accessed: float | None
    temp_bytes: int
    """Temporary memory of the program that needs most: they run one after another."""
