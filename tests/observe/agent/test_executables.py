"""XLA's programs, in a process of its own: those of other tests live in this one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys
from pathlib import Path
import jax, jax.numpy as jnp, msgspec
from perfdoctor.observe.agent.executables import MOST, executables

@jax.jit
def small(x):
    return x + 1

@jax.jit
def gone(x):
    return x - 1

def step(weights, inputs):
    return weights + jnp.tanh(inputs @ weights).mean()

step = jax.jit(step, donate_argnums=0)
weights = step(jnp.ones((64, 64)), jnp.ones((8, 64)))
small(jnp.ones(3)), gone(jnp.ones(3))
gone.clear_cache()
del gone
many = [jax.jit(lambda x, each=each: x * each) for each in range(int(sys.argv[2]))]
held = [each(jnp.ones(2)) for each in many]
print(msgspec.json.encode(executables(jax, Path(sys.argv[1]))).decode())
"""


def listed(folder: Path, others: int = 0) -> list[dict[str, Any]]:
    """The records of a program that runs a step, and others beside it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(others)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the programs' texts; not there yet."""
    return tmp_path_factory.mktemp("agent") / "executables"


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict[str, Any]]:
    return listed(folder)


def of(records: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (each for each in records if each["name"] == name)
    return found


def test_what_moves_most_bytes_stands_first(records: list[dict[str, Any]]) -> None:
    assert records[0]["name"] == "jit_step"
    moved = [each["bytes_accessed"] or 0.0 for each in records]
    assert moved == sorted(moved, reverse=True)


def test_programs_that_are_alive_are_listed(records: list[dict[str, Any]]) -> None:
    names = {each["name"] for each in records}
    assert "jit_small" in names
    assert "jit_gone" not in names


def test_a_program_tells_its_cost_and_memory(records: list[dict[str, Any]]) -> None:
    step = of(records, "jit_step")
    assert step["argument_bytes"] == 4 * 64 * 64 + 4 * 8 * 64
    assert step["output_bytes"] == step["alias_bytes"] == 4 * 64 * 64
    assert step["flops"] >= 2 * 8 * 64 * 64
    assert step["temp_bytes"] >= 0


def test_without_donation_nothing_is_shared(records: list[dict[str, Any]]) -> None:
    assert of(records, "jit_small")["alias_bytes"] == 0


def test_each_text_is_kept_in_its_file(records: list[dict[str, Any]], folder: Path) -> None:
    assert len({each["file"] for each in records}) == len(records)
    for each in records:
        assert (folder / each["file"]).read_text().startswith(f"HloModule {each['name']}")


def test_of_many_programs_the_largest_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "executables"
    records = listed(folder, others=30)
    assert len(records) == len(list(folder.iterdir())) == 20
    assert records[0]["name"] == "jit_step"
