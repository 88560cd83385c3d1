"""What jax's CUDA plugin tells of NVIDIA's libraries: which are missing, too old or silent."""

import re

from perfdoctor import Backend, GpuLibrary

SCALES = {"cupti": 1, "cuda": 10}
"""By library, the factor without which jax compares versions: their last digits, the patch, do not
matter. It is 100 for those that are not named here."""
PACKED = {"cudnn": 10_000, "cublas": 10_000}
"""By library, the factor of the major version in a version's number; cuDNN 8 and older ones have
1000."""
UNLOADED = re.compile(r"load|dlopen|shared object|not found|no such file", re.IGNORECASE)
"""What an error says that comes from a library which can't be loaded: jax's plugin ("Unable to load
cuDNN"), the dynamic linker ("cannot open shared object file")."""


def broken(backend: Backend) -> list[str]:
    """Libraries that jax can't use."""
    found = []
    for library in backend.libraries:
        built, scale = library.built_for, SCALES.get(library.name.lower(), 100)
        loaded = library.loaded
        if is_missing(library):
            needs = "; convolutions fail" if library.name.lower() == "cudnn" else ""
            why = f" ({library.error})" if library.error else ""
            found.append(f"{library.name} could not be loaded{why}{needs}")
        elif loaded is not None and built is not None and loaded // scale < built // scale:
            has, wants = version(library.name, loaded), version(library.name, built)
            found.append(f"{library.name} {has} is older than {wants}, which jax was built for")
    return found


def is_missing(library: GpuLibrary) -> bool:
    """Whether it could not be loaded; what was raised for another reason says nothing of that."""
    return library.loaded is None and (not library.error or bool(UNLOADED.search(library.error)))


def unknown(backend: Backend) -> list[str]:
    """Libraries that are there for all we know, and do not tell their versions."""
    return [
        f"{each.name} does not tell its version ({each.error}), so it is not known whether it fits"
        for each in backend.libraries
        if each.loaded is None and not is_missing(each)
    ]


def version(name: str, number: int) -> str:
    """91002 as 9.10.2; the number itself where its form is not known."""
    name = name.lower()
    if name not in PACKED:
        return str(number)
    major = PACKED[name] if number >= PACKED[name] else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"
