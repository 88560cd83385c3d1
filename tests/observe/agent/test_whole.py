"""Functions that dispatch operations, traced as one program."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from perfdoctor.observe.agent.eager import Candidate
from perfdoctor.observe.agent.outline import Arguments, outlined
from perfdoctor.observe.agent.whole import save_first_of
from perfdoctor.schema.calls import Eager
from perfdoctor.schema.capture import MANIFEST, WHOLE, WHOLE_BEGUN, WHOLE_TOLD, Capture

PARAMS = {"w": np.ones((4, 4), np.float32), "b": np.zeros(4, np.float32)}


def arguments(function: Callable[..., Any], **by_name: Any) -> Arguments:
    """As they are kept of a call of it."""
    cells = function.__closure__ or ()
    return Arguments(
        code=function.__code__,
        globals=function.__globals__,
        closure=tuple(outlined(jax, cell.cell_contents) for cell in cells),
        by_name={name: outlined(jax, value) for name, value in by_name.items()},
    )


def candidate(function: Callable[..., Any], **by_name: Any) -> Candidate:
    eager = Eager(function=function.__name__, file="train.py", line=1, call_ms=10.0, share=0.9)
    return Candidate(eager, arguments(function, **by_name))


def saved(folder: Path, *candidates: Candidate) -> tuple[Eager, Capture | None]:
    """What is told of them, and what was saved."""
    save_first_of(candidates, jax, folder, {}, {}, nullcontext)
    assert not (folder / WHOLE_BEGUN).exists()
    told = msgspec.json.decode((folder / WHOLE_TOLD).read_bytes(), type=Eager)
    manifest = folder / WHOLE / MANIFEST
    if not manifest.exists():
        return told, None
    return told, msgspec.json.decode(manifest.read_bytes(), type=Capture)


def train_step(params: Any, x: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda p: ((x @ p["w"] + p["b"]) ** 2).mean())(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def test_a_step_is_saved_with_its_state_fed_back(tmp_path: Path) -> None:
    params = jax.tree.map(jnp.asarray, PARAMS)
    told, capture = saved(tmp_path, candidate(train_step, params=params, x=np.ones((8, 4))))
    assert told.is_saved and capture is not None
    [call] = capture.calls
    roles = {(leaf.role, leaf.kind, leaf.shape) for leaf in call.leaves}
    state = {("state", "device", (4,)), ("state", "device", (4, 4))}
    assert roles == {*state, ("constant", "host", (8, 4))}
    assert call.donated == tuple(leaf.role == "state" for leaf in call.leaves)
    assert (tmp_path / WHOLE / call.programs["as-it-is"]).stat().st_size > 0


def test_the_outermost_that_jax_takes_is_saved_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def logs(params: Any, x: Any) -> Any:
        print("a step")
        params, loss = train_step(params, x)
        return params, float(loss)

    given = {"params": jax.tree.map(jnp.asarray, PARAMS), "x": jnp.ones((8, 4))}
    told, capture = saved(tmp_path, candidate(logs, **given), candidate(train_step, **given))
    assert told.function == "train_step" and told.is_saved and capture is not None
    assert capsys.readouterr() == ("", "")


def test_one_that_writes_is_not_traced(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"

    def writes(x: Any) -> Any:
        file.write_text("a step")
        return x + 1

    told, capture = saved(tmp_path, candidate(writes, x=jnp.ones(3)))
    assert capture is None and not told.is_saved
    assert told.why_not == "it does more than compute: open"
    assert not file.exists()
    file.write_text("afterwards it may")


def test_one_that_returns_nothing_is_told_so(tmp_path: Path) -> None:
    def counts(x: Any) -> int:
        return len(x)

    told, capture = saved(tmp_path, candidate(counts, x=jnp.ones(3)))
    assert capture is None and "returns no arrays" in told.why_not


def test_without_candidates_nothing_is_done(tmp_path: Path) -> None:
    save_first_of([], jax, tmp_path, {}, {}, nullcontext)
    assert list(tmp_path.iterdir()) == []


CACHING = """
import sys
from pathlib import Path
import jax
import jax.numpy as jnp
from tests.observe.agent.test_whole import PARAMS, candidate, saved, train_step

params = jax.tree.map(jnp.asarray, PARAMS)
x = jax.block_until_ready(jnp.ones((8, 4)))
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
told, _ = saved(Path(sys.argv[2]), candidate(train_step, params=params, x=x))
assert told.is_saved
"""


def test_nothing_is_written_to_the_programs_compilation_cache(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache", tmp_path / "saved"
    folder.mkdir()
    command = [sys.executable, "-c", CACHING, str(cache), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not cache.exists()
