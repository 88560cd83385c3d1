import subprocess
import sys

import pytest

import perfdoctor


@pytest.mark.parametrize("name", perfdoctor.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(perfdoctor, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'perfdoctor' has no attribute 'etl'"):
        _ = perfdoctor.etl  # type: ignore[attr-defined,unused-ignore]


def test_the_names_are_those_of_their_homes() -> None:
    from perfdoctor.answers import needed
    from perfdoctor.schema.observation import Observation

    assert perfdoctor.Observation is Observation
    assert perfdoctor.needed is needed


def test_the_names_are_sorted_and_unique() -> None:
    assert perfdoctor.__all__ == sorted(set(perfdoctor.__all__))


def loaded_by(statement: str) -> set[str]:
    """The packages that a fresh interpreter has loaded after the statement."""
    program = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def test_importing_perfdoctor_loads_nothing_heavy() -> None:
    loaded = loaded_by("import perfdoctor")
    assert "perfdoctor" in loaded
    assert not loaded & {"jax", "jaxlib", "numpy", "msgspec", "scipy", "rich", "typer"}


def test_the_doctor_and_its_checks_never_load_jax() -> None:
    loaded = loaded_by("import perfdoctor.doctor, perfdoctor.cli; perfdoctor.doctor.checks()")
    assert "perfdoctor_checks" in loaded
    assert not loaded & {"jax", "jaxlib", "equinox", "optax", "grain"}
