"""What is installed, and which accelerators the machine shows without jax."""

import os
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from perfdoctor.schema.surroundings import Libraries

PACKAGES = re.compile(
    r"^(jax|jaxlib|jax[-_].*|libtpu|numpy|optax|equinox|flax|dm[-_]haiku|grain|torch|tensorflow"
    r"|nvidia[-_](cudnn|cublas|nccl|cuda[-_]runtime).*)$",
    re.IGNORECASE,
)
"""Packages whose versions are told: jax, its plugins, and libraries that are used with it."""
FOLDER_END = re.compile(r"(-[0-9].*)?\.(dist|egg)-info$")
"""Of the folder in which an installed package's metadata lie, behind its name."""
DEVICE_FILES = {"nvidia[0-9]*": "NVIDIA GPU", "kfd": "AMD GPU (ROCm)", "accel[0-9]*": "TPU"}
"""Accelerators by the names of their files in /dev."""
VARIABLES = re.compile(
    r"^(JAX_.*|XLA_.*|TF_GPU_.*|CUDA_VISIBLE_DEVICES|NVIDIA_TF32_OVERRIDE|LD_PRELOAD|NPROC"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS|GLIBC_TUNABLES|MALLOC_.*|PYTHONMALLOC|PYTHONDEVMODE"
    r"|PYTHONTRACEMALLOC)$"
)
"""Environment variables that bear on performance."""


def libraries() -> Libraries:
    """What is installed for the interpreter that runs us, which is the one that runs the target."""
    packages = {}
    for distribution in filter(may_be_meant, metadata.distributions()):
        name = distribution.metadata["Name"]
        if name and PACKAGES.match(name):
            packages[name.lower().replace("_", "-")] = distribution.version
    return Libraries(
        python=platform.python_version(),
        packages=dict(sorted(packages.items())),
        accelerators=accelerators(Path("/dev")),
    )


def may_be_meant(distribution: metadata.Distribution) -> bool:
    """Whether it can be one of PACKAGES, by the name of its folder, `jax-0.8.0.dist-info`: reading
    the metadata of all that is installed takes 40 ms.
    """
    folder = getattr(distribution, "_path", None)
    return folder is None or PACKAGES.match(FOLDER_END.sub("", folder.name)) is not None


def accelerators(devices: Path) -> tuple[str, ...]:
    """Accelerators by their device files."""
    return tuple(
        f"{kind}: {file}"
        for pattern, kind in DEVICE_FILES.items()
        for file in sorted(devices.glob(pattern))
    )


def environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that bear on performance."""
    return {name: value for name, value in sorted(env.items()) if VARIABLES.match(name)}
