from pathlib import Path

import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor.trials.change import changed_env
from perfdoctor_checks import avx
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

GPU = Backend(platform="gpu", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)


def flagged(flags: str) -> Observation:
    """The healthy run under these flags of XLA."""
    return replace(recorded("healthy"), environment={"XLA_FLAGS": flags})


def on_cpu(*flags: str) -> Observation:
    """The healthy run on a CPU with these instruction sets only."""
    seen = recorded("healthy")
    return replace(seen, host=replace(seen.host, cpu_flags=flags))


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_where_xla_may_use_all(name: str) -> None:
    assert avx.check(recorded(name)).kind == "ok"


def test_finds_a_limit_below_what_the_cpu_has() -> None:
    seen = flagged("--xla_cpu_max_isa=SSE4_2")
    outcome = avx.check(seen)
    assert outcome.kind == "hint"  # what it costs is not in the observation; a trial decides
    assert_sound(outcome, seen)
    assert outcome.summary == "XLA is limited to SSE4_2, the CPU has AVX512"
    assert ("XLA's limit", "SSE4_2") in [(fact.name, fact.value) for fact in outcome.evidence]


def test_the_fix_leaves_the_other_flags_alone() -> None:
    seen = flagged("--xla_dump_to=/x --xla_cpu_max_isa=SSE4_2  --xla_cpu_enable_fast_math=false")
    fix = avx.check(seen).fixes[0]
    assert fix.change is not None
    rest = "--xla_dump_to=/x --xla_cpu_enable_fast_math=false"
    assert changed_env(seen.environment, fix.change, Path()) == {"XLA_FLAGS": rest}
    assert fix.how == f'export XLA_FLAGS="{rest}"'


def test_a_limit_that_the_code_sets_is_to_be_removed_there() -> None:
    seen = replace(flagged("--xla_cpu_max_isa=AVX2"), set_in_code=("XLA_FLAGS",))
    assert avx.check(seen).fixes[0].how == 'in the code: remove os.environ["XLA_FLAGS"]'


def test_a_limit_that_stands_alone_is_removed_with_its_variable() -> None:
    seen = flagged("--xla_cpu_max_isa=AVX")
    fix = avx.check(seen).fixes[0]
    assert fix.change is not None
    assert changed_env(seen.environment, fix.change, Path()) == {}
    assert fix.how == "unset XLA_FLAGS"


def test_the_last_limit_is_the_one_in_force() -> None:
    assert avx.check(flagged("--xla_cpu_max_isa=SSE4_2 --xla_cpu_max_isa=AVX512")).kind == "ok"
    assert avx.check(flagged("--xla_cpu_max_isa=AVX512 --xla_cpu_max_isa=AVX2")).kind == "hint"


@pytest.mark.parametrize("limit", ["AVX512", "AVX512_VNNI", "AMX_FP16", "AVX9"])
def test_a_limit_above_the_cpu_is_none(limit: str) -> None:
    assert avx.check(flagged(f"--xla_cpu_max_isa={limit}")).kind == "ok"


def test_a_limit_at_the_level_of_the_cpu_is_none() -> None:
    seen = replace(
        on_cpu("avx", "avx2", "fma"), environment={"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}
    )
    assert avx.check(seen).kind == "ok"


def test_names_the_operations_that_a_limit_hurts() -> None:
    evidence = avx.check(flagged("--xla_cpu_max_isa=SSE4_2")).evidence
    names = {fact.name for fact in evidence if fact.unit == "operations"}
    assert names == {"exponential", "log"}


def test_works_without_the_program() -> None:
    seen = replace(flagged("--xla_cpu_max_isa=SSE4_2"), program=None)
    assert_sound(avx.check(seen), seen)


def test_finds_a_cpu_without_avx2() -> None:
    seen = on_cpu("sse4_2", "avx")
    outcome = avx.check(seen)
    assert outcome.kind == "hint" and outcome.summary == "the CPU has AVX and no AVX2"
    assert_sound(outcome, seen)


def test_finds_an_emulated_cpu() -> None:
    seen = recorded("healthy")
    emulated = replace(seen, host=replace(seen.host, emulated="Rosetta"))
    outcome = avx.check(emulated)
    assert outcome.kind == "hint" and "Rosetta" in outcome.summary
    assert_sound(outcome, emulated)


def test_has_nothing_to_say_of_a_gpu_or_an_arm_cpu() -> None:
    seen = flagged("--xla_cpu_max_isa=SSE4_2")
    arm = replace(seen, host=replace(seen.host, architecture="aarch64"))
    assert avx.check(arm).kind == "not-applicable"
    assert avx.check(replace(seen, backend=GPU)).kind == "not-applicable"
