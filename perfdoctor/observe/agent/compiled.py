"""What XLA has compiled for a call of the program, in a form that another process can run."""

from typing import Any

from perfdoctor.injection.calls import OWN_FILES

OWN_FILES.add(__file__)


def compiled_before(jax: Any, traced: Any) -> Any:
    """What jax keeps of a traced call that the program has made before; None if it would have to be
    compiled anew: this is no matter of the program.

    What jax keeps is told by attributes that are no interface of it; where a version has them no
    more, nothing is kept.
    """
    if jax.default_backend() != "cpu" or jax.local_device_count() > 1:
        return None
    lowered = traced.lower()
    if getattr(getattr(lowered, "_lowering", None), "_executable", None) is None:
        return None
    return lowered.compile()


def serialized(compiled: Any) -> bytes | None:
    """An executable for another process; None if it can't have it: it holds an array, say."""
    from jax.experimental.serialize_executable import serialize

    try:
        return bytes(serialize(compiled)[0])
    except Exception:  # the replay compiles it then
        return None
