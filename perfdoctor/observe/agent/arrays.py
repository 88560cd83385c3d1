"""The values of arrays, and the memory that they lie in."""

import sys
import zlib
from typing import Any

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.schema.capture import ALIGNED

OWN_FILES.add(__file__)
Look = tuple[tuple[int, ...], str]
"""Shape and type."""
SAMPLED_BYTES = 4096
"""Bytes of a host array that are compared: a program may fill it anew."""
COMPARED_BYTES = 2**20
"""From which size on arrays of jax are compared: that is what copies count from."""


def copied(jax: Any, array: Any) -> Any:
    """A copy on the same devices, made as soon as the array is computed; nobody waits for it."""
    return jax.device_put(array, array.sharding, may_alias=False)


def shape_of(leaf: Any) -> Look:
    """What two arrays must have in common to share a buffer: shape and type."""
    return tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf)))


def address(leaf: Any) -> int | None:
    """The address of an array's buffer; None where it can't be told, as for an array on several
    devices. It is waited for until the array is computed, and other threads run meanwhile: jax asks
    for the pointer without letting go of the interpreter, and what computes it may call back.
    """
    try:
        if not hasattr(leaf, "unsafe_buffer_pointer"):
            return int(leaf.__array_interface__["data"][0])
        return None if leaf.is_deleted() else int(leaf.block_until_ready().unsafe_buffer_pointer())
    except Exception:
        return None


def is_host_array(value: Any) -> bool:
    """Whether it is one of NumPy's, which is imported if the program has any."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def offset_bytes(value: Any) -> int | None:
    """By how much the address of an array of NumPy's lies beyond a multiple of `ALIGNED`; None for
    all others.
    """
    begin = address(value) if is_host_array(value) else None
    return None if begin is None else begin % ALIGNED


def axes_of(value: Any) -> tuple[int, ...]:
    """The axes of an array of NumPy's, from that whose neighbours lie furthest apart in memory;
    none where that is their order, and for all others.
    """
    if not is_host_array(value) or value.flags.c_contiguous:
        return ()
    axes = tuple(sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis])))
    return axes if axes != tuple(range(value.ndim)) else ()


def contents(leaf: Any) -> int:
    """A checksum of some values of a host array, which may be filled anew; 0 for all others."""
    return checksum(leaf) if is_host_array(leaf) else 0


def contents_on_device(jax: Any, leaf: Any) -> int:
    """A checksum of some values of a large array of jax in the host's memory, which a program may
    make in each step of the same values; waits until it is computed. 0 for all others.
    """
    if getattr(leaf, "nbytes", 0) < COMPARED_BYTES or not lies_in_host_memory(jax, leaf):
        return 0
    return checksum(leaf) if len(leaf.devices()) == 1 and not leaf.is_deleted() else 0


def checksum(array: Any) -> int:
    """A checksum of some of an array's values, which are fetched if they are not on the host."""
    import numpy

    leaf = numpy.asarray(array)
    flat = leaf.reshape(-1) if leaf.flags.c_contiguous else leaf.ravel()
    step = max(1, leaf.nbytes // SAMPLED_BYTES)
    return zlib.crc32(numpy.ascontiguousarray(flat[::step]).tobytes())


def lies_in_host_memory(jax: Any, value: Any) -> bool:
    """Whether it is an array of jax on the CPU, of whose memory there is enough for a copy."""
    if not isinstance(value, jax.Array):
        return False
    return all(device.platform == "cpu" for device in value.devices())


def raw_bytes(value: Any) -> Any:
    """The values of an array in the order of their indices, as a buffer."""
    import numpy

    flat = numpy.ascontiguousarray(numpy.asarray(value)).reshape(-1)
    return memoryview(flat.view(numpy.uint8))  # type: ignore[arg-type]


def as_array(number: Any, dtype: Any) -> Any:
    """A Python number."""
    import numpy

    return numpy.asarray(number, dtype)


def bounds_of(value: Any) -> tuple[int, int]:
    """The lowest and the highest value of an integer array, or of a million of its values."""
    import numpy

    if not numpy.issubdtype(value.dtype, numpy.integer) or not value.size:
        return 0, 1
    some = numpy.asarray(value.reshape(-1)[:1_000_000])
    return int(some.min()), int(some.max()) + 1


def elements_in(leaves: list[Any]) -> int:
    """All elements of some arrays and numbers."""
    return sum(getattr(leaf, "size", 1) for leaf in leaves)


def is_ready(reference: Any) -> bool:
    """Whether an array is computed, or gone."""
    array = reference() if reference is not None else None
    return array is None or array.is_deleted() or bool(array.is_ready())
