"""XLA's account of the step: cost, memory, and what its optimised program calls and copies."""

import hashlib
import math
import re
from collections import Counter
from pathlib import Path

from perfdoctor.schema.program import Executable
from perfdoctor.schema.recording import ExecutableRecord, Recording

TARGET = re.compile(r'custom_call_target="([^"]+)"')
COPY = re.compile(r"= (\w+)\[([\d,]*)\]\S* copy\(")
BITS = re.compile(r"\d+")
PLACES = re.compile(
    r""",?\ ?metadata=\{(?:"[^"]*"|[^"}])*\}
    | ^(?:FileNames|FunctionNames|FileLocations|StackFrames)$
    | ^\d+\ .*$""",
    re.MULTILINE | re.VERBOSE,
)
"""Of the source code: in each operation, and in tables before the first."""


def executable_of(folder: Path, function: str, recording: Recording) -> Executable | None:
    """The program of a jitted function; of several, the one that moves most bytes."""
    record = next((each for each in recording.executables if is_of(each, function)), None)
    if record is None:
        return None
    text = (folder / "executables" / record.file).read_text()
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


def hashed(text: str) -> str:
    """The same for the same program, wherever in the source code its operations stand."""
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
    bits = BITS.search(dtype)
    elements = math.prod(int(each) for each in shape.split(",") if each)
    return elements * max(8, int(bits[0]) if bits else 8) // 8
