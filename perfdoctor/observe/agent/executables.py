"""Writes down what XLA says of the programs that it has compiled and that are still alive."""

from pathlib import Path
from typing import Any

from perfdoctor.schema.recording import ExecutableRecord

MOST = 20
"""Programs written down, those first that move most bytes."""


def executables(jax: Any, folder: Path) -> list[ExecutableRecord]:
    """XLA's own accounts of its programs; their optimised text goes into `folder`."""
    folder.mkdir()
    found = [account(each) for each in jax.local_devices()[0].client.live_executables()]
    found.sort(key=lambda pair: -(pair[0].bytes_accessed or 0.0))
    for index, (record, module) in enumerate(found[:MOST]):
        record.file = f"{index}.txt"
        (folder / record.file).write_text(module.to_string())
    return [record for record, _ in found[:MOST]]


def account(executable: Any) -> tuple[ExecutableRecord, Any]:
    """Name, cost and memory of one program, and its module."""
    module = executable.hlo_modules()[0]
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
    cost = (cost[0] if isinstance(cost, list) else cost) or {}
    record = ExecutableRecord(
        name=module.name,
        flops=cost.get("flops"),
        bytes_accessed=cost.get("bytes accessed"),
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
    )
    return record, module
