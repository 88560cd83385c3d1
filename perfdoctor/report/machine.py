"""The machine, as `perfdoctor env` writes it."""

import msgspec

from perfdoctor.schema.machine import Machine

GIB = 2**30
"""Bytes of a GiB."""


def as_json(machine: Machine) -> str:
    """All fields, indented."""
    return msgspec.json.format(msgspec.json.encode(machine), indent=2).decode() + "\n"


def as_text(machine: Machine) -> str:
    """One line for each thing, empty ones left out."""
    rows = [row for row in lines(machine) if row[1]]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in rows)


def lines(machine: Machine) -> list[tuple[str, str]]:
    """Names and values."""
    host, libraries = machine.host, machine.libraries
    quota = f", cgroup quota {host.quota_cores:g}" if host.quota_cores else ""
    limit = f", limit {host.memory_limit_bytes / GIB:.1f} GiB" if host.memory_limit_bytes else ""
    return [
        ("os", host.os),
        ("cpu", f"{host.cpu_model} ({host.architecture})"),
        (
            "cores",
            f"{host.usable_cores:g} usable of {host.logical_cores} "
            f"(affinity {host.affinity_cores}{quota})",
        ),
        ("vector sets", " ".join(host.cpu_flags)),
        ("emulated by", host.emulated or ""),
        ("memory", f"{host.memory_bytes / GIB:.1f} GiB{limit}"),
        *(
            (
                f"gpu {g.index}",
                f"{g.name}, {(g.memory_bytes or 0) / GIB:.1f} GiB, driver {g.driver}, "
                f"CUDA {g.cuda_driver_version}",
            )
            for g in machine.gpus
        ),
        ("accelerators", ", ".join(libraries.accelerators)),
        ("backend", backend(machine)),
        ("python", libraries.python),
        *sorted(libraries.packages.items()),
        *((f"${name}", value or '""') for name, value in machine.environment.items()),
    ]


def backend(machine: Machine) -> str:
    """What jax computes on, or why it doesn't."""
    if machine.backend is None:
        return f"none: {machine.failure.message}" if machine.failure else "none"
    kinds = ", ".join(device.kind for device in machine.backend.devices)
    return f"{machine.backend.platform}: {kinds}"
