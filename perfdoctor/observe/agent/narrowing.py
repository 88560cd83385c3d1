"""Programs that were traced in 32 bits while the script computes in 64."""

from typing import Any

from perfdoctor.observe.agent.rewriting import changed_value_by


def in_32_bits(jax: Any, closed: Any) -> Any:
    """A closed jaxpr without wider types; to be called within `x64_off`, as it was traced.

    All that is computed is narrow in it. But where the script has handed a numpy array to jax
    before, as a constant, jax has kept that in 64 bits, and takes it from there.
    """
    inner = open_in_32_bits(jax, closed.jaxpr)
    return closed.replace(jaxpr=inner, consts=[narrow_value(jax, each) for each in closed.consts])


def open_in_32_bits(jax: Any, jaxpr: Any) -> Any:
    """The same of an open program."""
    from jax.extend.core import Literal

    known: dict[Any, Any] = {}

    def narrow(atom: Any) -> Any:
        aval = atom.aval
        if (dtype := narrow_dtype(jax, aval)) is None:
            return atom
        if isinstance(atom, Literal):
            return Literal(narrow_value(jax, atom.val), aval.update(dtype=dtype))
        return known.setdefault(atom, type(atom)(aval.update(dtype=dtype)))

    def narrow_all(atoms: Any) -> list[Any]:
        return [narrow(each) for each in atoms]

    def again(value: Any) -> Any:
        return in_32_bits(jax, value) if hasattr(value, "consts") else open_in_32_bits(jax, value)

    return jaxpr.replace(
        constvars=narrow_all(jaxpr.constvars),
        invars=narrow_all(jaxpr.invars),
        outvars=narrow_all(jaxpr.outvars),
        eqns=[
            each.replace(
                invars=narrow_all(each.invars),
                outvars=narrow_all(each.outvars),
                params={name: changed_value_by(again, of) for name, of in each.params.items()},
            )
            for each in jaxpr.eqns
        ],
    )


def narrow_dtype(jax: Any, value: Any) -> Any:
    """The dtype that jax has in 32 bits for an array or type; None if it has that one."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return None
    narrow = jax.dtypes.canonicalize_dtype(dtype)
    return None if narrow == dtype else narrow


def narrow_value(jax: Any, value: Any) -> Any:
    """An array of at most 32 bits."""
    dtype = narrow_dtype(jax, value)
    return value if dtype is None else value.astype(dtype)
