from msgspec.structs import replace

from perfdoctor.bench.fingerprint import differences, fingerprint
from tests.bench.made import HERE


def test_the_same_machine_is_the_same() -> None:
    env = {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "HOME": "/root"}
    assert differences(fingerprint(env), fingerprint(env)) == []
    assert fingerprint(env).variables == {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}


def test_a_difference_is_named_with_both_its_sides() -> None:
    other = replace(HERE, cpu="Xeon", vector_sets=(), variables={"OMP_NUM_THREADS": "1"})
    assert differences(other, HERE) == [
        "cpu Xeon, here EPYC",
        "vector_sets none, here avx2 avx512f",
        "variables OMP_NUM_THREADS=1, here none",
    ]
    assert differences(replace(HERE, driver="570"), HERE) == ["driver 570, here none"]
