"""XLA's account of the step: cost, memory, and what its optimised program calls and copies."""

import hashlib
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from perfdoctor.protocol import EXECUTABLES
from perfdoctor.schema.program import Executable, bytes_of
from perfdoctor.schema.recording import ExecutableRecord, Recording

TARGET = re.compile(r'custom_call_target="([^"]+)"')
COPY = re.compile(r"= (\w+)\[([\d,]*)\]\S* copy\(")
BLOCK = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$", re.MULTILINE)
CONVOLUTION = re.compile(r"^ +(?:ROOT )?%?([\w.-]+) = .* convolution\(", re.MULTILINE)
FUSION = re.compile(r"^ +(?:ROOT )?%?([\w.-]+) = .* fusion\(.* calls=%?([\w.-]+)", re.MULTILINE)
OPERATION = re.compile(r"^ +(?:ROOT )?%?([\w.-]+) = (.+?) ([\w-]+)\((.*)$", re.MULTILINE)
SHAPE = re.compile(r"\[([\d,]*)\]")
NAMED = re.compile(r"%?([A-Za-z][\w.-]*)")
"""What is found in the text of an optimised program (HLO): targets of calls, plain copies, the
beginnings of computations, convolutions, fusions with what they call, operations with result, name
and operands, shapes, and names of operands."""
HOLDING = ("while", "call", "conditional", "tuple", "get-tuple-element", "parameter", "bitcast")
"""Operations that hold others, or do nothing."""
LONG = 2048
"""Axes that are beyond what the guide has for a layer's size."""
PLACES = re.compile(
    r""",?\ ?metadata=\{(?:"[^"]*"|[^"}])*\}
    | ^(?:FileNames|FunctionNames|FileLocations|StackFrames)$
    | ^\d+\ .*$""",
    re.MULTILINE | re.VERBOSE,
)
"""What names places in the source code: in each operation, and in tables before the first."""


def executable_of(folder: Path, function: str, recording: Recording) -> Executable | None:
    """The program of a jitted function; of several, the one that moves most bytes."""
    record = record_of(function, recording)
    if record is None:
        return None
    text = text_of(folder, record)
    return Executable(
        flops=record.flops,
        bytes_accessed=record.bytes_accessed,
        argument_bytes=record.argument_bytes,
        output_bytes=record.output_bytes,
        alias_bytes=record.alias_bytes,
        temp_bytes=record.temp_bytes,
        custom_calls=dict(Counter(TARGET.findall(text))),
        copied_bytes=sum(size(dtype, shape) for dtype, shape in COPY.findall(text)),
        hlo=hashed(text),
    )


def record_of(function: str, recording: Recording) -> ExecutableRecord | None:
    """XLA's account of a jitted function: that of the program that moves most bytes."""
    return next((each for each in recording.executables if is_of(each, function)), None)


def text_of(folder: Path, record: ExecutableRecord) -> str:
    """The optimised program."""
    return (folder / EXECUTABLES / record.file).read_text()


def convolutions_in(text: str) -> frozenset[str]:
    """The operations of an optimised program that are convolutions, or fusions that hold one."""
    alone = {found.start(): found[1] for found in CONVOLUTION.finditer(text)}
    if not alone:
        return frozenset()
    begins = [(found.start(), found[1]) for found in BLOCK.finditer(text)]
    holding = {begins[bisect_right(begins, (at, "")) - 1][1] for at in alone if begins}
    fused = {found[1] for found in FUSION.finditer(text) if found[2] in holding}
    return frozenset(fused.union(alone.values()))


def axes_ms(text: str, operation_ms: Mapping[str, float]) -> tuple[float, dict[int, float]]:
    """What a program's operations took, and those that touch arrays with a long axis, by its
    length.

    `text`: the optimised program; `operation_ms`: by the name of an operation.
    """
    axes: dict[str, frozenset[int]] = {}
    touched: defaultdict[int, float] = defaultdict(float)
    whole_ms = 0.0
    for name, kind, opcode, operands in OPERATION.findall(text):
        own = {int(each) for shape in SHAPE.findall(kind) for each in shape.split(",") if each}
        axes[name] = frozenset(each for each in own if each > LONG)
        if opcode in HOLDING:
            continue
        took_ms = operation_ms.get(name, 0.0)
        whole_ms += took_ms
        read = (axes.get(each, frozenset()) for each in NAMED.findall(operands))
        for length in axes[name].union(*read):
            touched[length] += took_ms
    return whole_ms, dict(touched)


def hashed(text: str) -> str:
    """A hash that is the same for the same program, wherever in the source code its operations
    stand.
    """
    lines = (line for line in PLACES.sub("", text).splitlines() if line.strip())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def is_of(record: ExecutableRecord, function: str) -> bool:
    """Whether XLA's name for a program is that of the jitted function."""
    return record.name == module_name(function)


def module_name(function: str) -> str:
    """The name that jax gives to the program of a jitted function."""
    return "jit_" + re.sub(r"[^\w.-]", "_", function).rstrip("_")


def size(dtype: str, shape: str) -> int:
    """Bytes of an array, its type as XLA names it: f32, bf16, pred."""
    return bytes_of(dtype, [int(each) for each in shape.split(",") if each])
