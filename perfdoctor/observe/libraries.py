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
DEVICE_FILES = {"nvidia[0-9]*": "NVIDIA GPU", "kfd": "AMD GPU (ROCm)", "accel[0-9]*": "TPU"}
VARIABLES = re.compile(
    r"^(JAX_.*|XLA_.*|TF_GPU_.*|CUDA_VISIBLE_DEVICES|NVIDIA_TF32_OVERRIDE|LD_PRELOAD|NPROC"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS|GLIBC_TUNABLES|MALLOC_.*|PYTHONMALLOC|PYTHONDEVMODE"
    r"|PYTHONTRACEMALLOC)$"
)


def libraries() -> Libraries:
    """For the interpreter that runs us, which is the one that runs the target."""
    packages = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and PACKAGES.match(name):
            packages[name.lower().replace("_", "-")] = distribution.version
    return Libraries(
        python=platform.python_version(),
        packages=dict(sorted(packages.items())),
        accelerators=accelerators(Path("/dev")),
    )


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
