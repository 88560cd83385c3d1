import os
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from perfdoctor.observe.gpu import gpus, name_of, text

GONE = 2**22 + 1
"""Above the highest process id that Linux gives."""


def unsupported(*_: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A driver with one GPU, on which we and another container compute."""
    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 * 2**30, used=2**30),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37),
        "nvmlSystemGetCudaDriverVersion": 12080,
        "nvmlDeviceGetName": b"NVIDIA H200",
        "nvmlSystemGetDriverVersion": "570.86",
        "nvmlDeviceGetComputeRunningProcesses": [
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=2**20),
            SimpleNamespace(pid=GONE, usedGpuMemory=None),
        ],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, lambda *_, answer=answer: answer)
    return monkeypatch


@pytest.mark.usefixtures("driver")
def test_what_the_driver_says_of_a_gpu() -> None:
    (found,) = gpus()
    assert (found.index, found.name, found.driver) == (0, "NVIDIA H200", "570.86")
    assert (found.memory_bytes, found.memory_used_bytes) == (80 * 2**30, 2**30)
    assert found.utilisation_percent == 37
    assert found.cuda_driver_version == "12.8"


@pytest.mark.usefixtures("driver")
def test_processes_of_other_containers_have_no_name() -> None:
    (found,) = gpus()
    assert [process.pid for process in found.processes] == [os.getpid(), GONE]
    assert found.processes[0].name == psutil.Process().name()
    assert found.processes[1].name == "?"
    assert found.processes[1].memory_bytes is None


@pytest.mark.usefixtures("driver")
def test_our_own_processes_are_not_listed() -> None:
    (found,) = gpus(frozenset({os.getpid()}))
    assert [process.pid for process in found.processes] == [GONE]


def test_what_a_driver_does_not_support_is_left_out(driver: pytest.MonkeyPatch) -> None:
    driver.setattr(pynvml, "nvmlDeviceGetUtilizationRates", unsupported)
    driver.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", unsupported)
    (found,) = gpus()
    assert found.utilisation_percent is None
    assert found.processes == ()
    assert found.name == "NVIDIA H200"


def test_no_gpu_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    assert gpus() == ()


def test_the_machine_that_runs_the_tests_can_be_asked() -> None:
    for index, found in enumerate(gpus()):
        assert found.index == index
        assert found.memory_bytes is None or found.memory_bytes > 0


@pytest.mark.parametrize("value", ["NVIDIA A100", b"NVIDIA A100"])
def test_text_of_new_and_old_bindings(value: str | bytes) -> None:
    assert text(value) == "NVIDIA A100"


def test_name_of_a_process_that_is_gone() -> None:
    assert name_of(GONE) == "?"
