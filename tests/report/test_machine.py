import msgspec
import pytest
from msgspec.structs import replace

from perfdoctor.report.machine import as_json, as_text
from perfdoctor.schema.machine import Machine
from perfdoctor.schema.run import Failure
from perfdoctor.schema.surroundings import Gpu
from tests.recorded import recorded

GPU = Gpu(
    index=0,
    name="NVIDIA H100",
    memory_bytes=80 * 2**30,
    memory_used_bytes=0,
    utilisation_percent=None,
    driver="580.65",
    cuda_driver_version="13.0",
)


@pytest.fixture
def machine() -> Machine:
    """The machine of a recorded run."""
    seen = recorded("healthy")
    assert seen.libraries is not None
    return Machine(
        host=replace(seen.host, memory_bytes=16 * 2**30),
        gpus=(),
        libraries=replace(seen.libraries, packages={"optax": "0.2", "jax": "0.10.2"}),
        environment={},
        backend=seen.backend,
        failure=None,
    )


def rows(machine: Machine) -> dict[str, str]:
    """The text, taken apart."""
    pairs = (line.split("  ", 1) for line in as_text(machine).splitlines())
    return {name: value.strip() for name, value in pairs}


def test_one_line_for_each_thing(machine: Machine) -> None:
    seen = rows(machine)
    assert seen["cpu"] == f"{machine.host.cpu_model} (x86_64)"
    assert seen["cores"] == "2 usable of 2 (affinity 2)"
    assert seen["memory"] == "16.0 GiB"
    assert seen["backend"] == "cpu: cpu"
    assert seen["jax"] == "0.10.2"


def test_the_values_stand_in_one_column(machine: Machine) -> None:
    lines = as_text(machine).splitlines()
    (width,) = {len(line) - len(line.split("  ", 1)[1].lstrip()) for line in lines}
    assert all(line[width - 1] == " " and line[width] != " " for line in lines)


def test_what_is_not_there_has_no_line(machine: Machine) -> None:
    assert not {"emulated by", "accelerators", "gpu 0"} & set(rows(machine))


def test_packages_are_in_alphabetical_order(machine: Machine) -> None:
    names = list(rows(machine))
    assert names.index("jax") < names.index("optax")


def test_what_limits_the_machine_is_shown(machine: Machine) -> None:
    limited = replace(
        machine.host,
        usable_cores=1.5,
        quota_cores=1.5,
        memory_limit_bytes=2**30,
        emulated="QEMU",
    )
    seen = rows(replace(machine, host=limited))
    assert seen["cores"] == "1.5 usable of 2 (affinity 2, cgroup quota 1.5)"
    assert seen["memory"] == "16.0 GiB, limit 1.0 GiB"
    assert seen["emulated by"] == "QEMU"


def test_gpus_are_shown(machine: Machine) -> None:
    seen = rows(replace(machine, gpus=(GPU,)))
    assert seen["gpu 0"] == "NVIDIA H100, 80.0 GiB, driver 580.65, CUDA 13.0"


def test_variables_are_marked_as_such(machine: Machine) -> None:
    assert rows(replace(machine, environment={"JAX_PLATFORMS": "cpu"}))["$JAX_PLATFORMS"] == "cpu"


def test_a_variable_that_is_set_to_nothing_is_shown(machine: Machine) -> None:
    hiding = replace(machine, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert "$CUDA_VISIBLE_DEVICES" in as_text(hiding)


def test_a_jax_that_does_not_start_says_why(machine: Machine) -> None:
    failure = Failure(stage="import", kind="raised", message="No module named 'jax'", seconds=0.1)
    broken = replace(machine, backend=None, failure=failure)
    assert rows(broken)["backend"] == "none: No module named 'jax'"
    assert rows(replace(broken, failure=None))["backend"] == "none"


def test_json_can_be_read_back(machine: Machine) -> None:
    whole = replace(machine, gpus=(GPU,), environment={"XLA_FLAGS": ""})
    assert msgspec.json.decode(as_json(whole), type=Machine) == whole
    assert as_json(whole).endswith("}\n")
