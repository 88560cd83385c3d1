import platform
from importlib import metadata
from pathlib import Path

import pytest

from perfdoctor.observe.libraries import PACKAGES, accelerators, environment, libraries


def test_versions_are_those_installed() -> None:
    found = libraries()
    assert found.python == platform.python_version()
    for name in ("jax", "jaxlib", "optax", "equinox", "numpy"):
        assert found.packages[name] == metadata.version(name)


def test_packages_that_have_no_part_in_the_field_are_left_out() -> None:
    packages = libraries().packages
    assert "pytest" not in packages
    assert list(packages) == sorted(packages)


@pytest.mark.parametrize(
    "name", ["jax", "jaxlib", "jax-cuda12-plugin", "jax_cuda12_pjrt", "libtpu", "nvidia-cudnn-cu12"]
)
def test_packages_that_matter_are_recognised(name: str) -> None:
    assert PACKAGES.match(name)


@pytest.mark.parametrize("name", ["jaxtyping", "jaxopt2", "numpydoc", "nvidia-curand-cu12"])
def test_packages_that_only_look_alike_are_not(name: str) -> None:
    assert not PACKAGES.match(name)


def test_accelerators_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "kfd", "accel0", "null"):
        (tmp_path / name).touch()
    assert accelerators(tmp_path) == (
        f"NVIDIA GPU: {tmp_path / 'nvidia0'}",
        f"NVIDIA GPU: {tmp_path / 'nvidia1'}",
        f"AMD GPU (ROCm): {tmp_path / 'kfd'}",
        f"TPU: {tmp_path / 'accel0'}",
    )


def test_no_accelerators_where_there_are_no_device_files(tmp_path: Path) -> None:
    assert accelerators(tmp_path) == ()
    assert accelerators(tmp_path / "absent") == ()


def test_only_variables_that_bear_on_performance_are_kept() -> None:
    kept = {
        "JAX_ENABLE_X64": "1",
        "LD_PRELOAD": "libtcmalloc.so",
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    }
    private = {"HOME": "/root", "API_TOKEN": "secret", "MY_XLA_FLAGS": "", "NPROCS": "3"}
    assert environment({**private, **kept}) == kept


def test_the_environment_is_that_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_TEST_OF_PERFDOCTOR", "here")
    assert environment()["XLA_TEST_OF_PERFDOCTOR"] == "here"
