import os

import psutil
import pytest

from perfdoctor.observe.host import emulation, field, host, vector_flags

X86 = """\
processor\t: 0
model name\t: AMD EPYC 9R14
flags\t\t: fpu vme sse sse4_1 ssse3 avx2 avx fma f16c rdrand avx512f

processor\t: 1
model name\t: something else
flags\t\t: sse
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes sve\nCPU part\t: 0xd40\n"


def test_field_is_the_first_of_its_name() -> None:
    assert field(X86, "model name") == "AMD EPYC 9R14"


def test_field_that_is_not_there() -> None:
    assert field(X86, "Features") is None
    assert field("", "flags") is None


def test_vector_flags_of_x86_are_sorted_and_without_the_rest() -> None:
    expected = ("avx", "avx2", "avx512f", "f16c", "fma", "sse", "sse4_1", "ssse3")
    assert vector_flags(X86) == expected


def test_vector_flags_of_arm() -> None:
    assert vector_flags(ARM) == ("asimd", "sve")


def test_no_vector_flags_without_cpu_info() -> None:
    assert vector_flags("") == ()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("QEMU Virtual CPU version 2.5+", "QEMU Virtual CPU version 2.5+"),
        ("QEMU TCG CPU version 2.5+", "QEMU TCG CPU version 2.5+"),
        ("VirtualApple @ 2.50GHz", "Rosetta"),
        ("Intel(R) Xeon(R) Platinum 8488C", None),
    ],
)
def test_emulation_shows_in_the_model_name(model: str, expected: str | None) -> None:
    assert emulation(f"model name\t: {model}\n") == expected


def test_emulation_is_not_seen_without_a_model_name() -> None:
    assert emulation(ARM) is None


def test_host_is_this_machine() -> None:
    found = host()
    assert found.logical_cores == os.cpu_count()
    assert found.memory_bytes == psutil.virtual_memory().total
    assert found.cpu_model


def test_usable_cores_exceed_neither_affinity_nor_quota() -> None:
    found = host()
    assert found.usable_cores == min(found.affinity_cores, found.quota_cores or float("inf"))
    assert 1 <= found.affinity_cores <= found.logical_cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_affinity_limits_the_usable_cores() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        found = host()
    finally:
        os.sched_setaffinity(0, before)
    assert found.affinity_cores == 1
    assert found.usable_cores <= 1
