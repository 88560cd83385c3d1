"""What is asked of the observed process itself."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfdoctor.observe.agent.process import changed, dump_programs


def jax_with(**values: Any) -> tuple[SimpleNamespace, dict[str, Any]]:
    """A jax of these settings, and those made since."""
    made: dict[str, Any] = {}
    config = SimpleNamespace(values=values, update=made.__setitem__)
    return SimpleNamespace(config=config), made


def test_programs_are_written_to_a_folder_of_ours(tmp_path: Path) -> None:
    jax, made = jax_with(jax_dump_ir_to="")
    assert dump_programs(jax, tmp_path / "programs") == str(tmp_path / "programs")
    assert (tmp_path / "programs").is_dir()
    assert made == {"jax_dump_ir_to": str(tmp_path / "programs")}


def test_where_jax_writes_programs_already_they_stay(tmp_path: Path) -> None:
    jax, made = jax_with(jax_dump_ir_to="/home/me/ir")
    assert dump_programs(jax, tmp_path / "programs") == "/home/me/ir"
    assert made == {}


def test_what_the_program_has_set_in_its_environment_is_told() -> None:
    before = {"XLA_FLAGS": "", "PATH": "/bin", "NPROC": "2"}
    now = {"XLA_FLAGS": "--xla_cpu_max_isa=AVX", "PATH": "/bin", "OMP_NUM_THREADS": "1"}
    assert changed(before, now) == {
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX",
        "OMP_NUM_THREADS": "1",
    }
