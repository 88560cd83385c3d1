"""What XLA has compiled for a call of the program, in a form that another process can run.

What jax keeps of it is told by attributes that are no interface: where it can't be had, whatever
the reason, the replay compiles the call itself.
"""

from typing import Any

from perfdoctor.injection.calls import OWN_FILES

OWN_FILES.add(__file__)


def compiled_before(jax: Any, traced: Any) -> Any:
    """What jax keeps of a traced call that the program has made before; None if it would have to be
    compiled anew, for this is no matter of the program.
    """
    try:
        if jax.default_backend() != "cpu" or jax.local_device_count() > 1:
            return None
        lowered = traced.lower()
        return lowered.compile() if lowered._lowering._executable is not None else None
    except Exception:
        return None


def serialized(compiled: Any) -> bytes | None:
    """An executable for another process; None if that can't have it: it may hold an array, say."""
    from jax.experimental.serialize_executable import serialize

    try:
        return bytes(serialize(compiled)[0])
    except Exception:
        return None
