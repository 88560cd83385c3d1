import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import msgspec
import numpy as np
import pytest

from perfdoctor.schema.workload import Data, Model, Process, Training, Workload
from perfdoctor.targets.reference.generate import write
from perfdoctor.targets.reference.loop import TrainingLoop

DATA = Data(source="memory", examples=20, image_size=8, sequence_length=4, prefetch=0)
FLOAT64 = """
import json, sys
from pathlib import Path
import equinox as eqx, jax, msgspec
from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.loop import TrainingLoop

loop = TrainingLoop(msgspec.json.decode(sys.argv[1], type=Workload), Path(sys.argv[2]))
loop.run(1)
leaves = jax.tree.leaves(eqx.filter(loop.state, eqx.is_inexact_array))
print(json.dumps({"dtypes": sorted({str(leaf.dtype) for leaf in leaves}),
                  "loss": str(loop.metrics.loss.dtype)}))
"""


def workload(
    *,
    name: Literal["mlp", "lstm", "transformer"] = "mlp",
    dtype: Literal["float32", "bfloat16", "mixed", "float64"] = "float32",
    process: Process | None = None,
    **training: Any,
) -> Workload:
    return Workload(
        model=Model(name=name, width=4, depth=1),
        data=DATA,
        training=Training(batch_size=3, dtype=dtype, log_every=0, **training),
        process=process or Process(),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of images and that of tokens, of tiny sizes."""
    found = tmp_path_factory.mktemp("data")
    write(workload(), found)
    write(workload(name="lstm"), found)
    return found


def params(loop: TrainingLoop) -> list[Any]:
    return jax.tree.leaves(loop.state.params)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("dtype", "stored"), [("float32", "float32"), ("bfloat16", "bfloat16"), ("mixed", "float32")]
)
def test_parameters_have_the_type_of_the_workload(
    folder: Path, dtype: Literal["float32", "bfloat16", "mixed"], stored: str
) -> None:
    loop = TrainingLoop(workload(dtype=dtype), folder)
    assert {str(leaf.dtype) for leaf in params(loop)} == {stored}
    loop.run(1)
    assert {str(leaf.dtype) for leaf in params(loop)} == {stored}


def test_mixed_precision_computes_in_bfloat16(folder: Path) -> None:
    loop = TrainingLoop(workload(dtype="mixed"), folder)
    inputs, labels = next(loop.batches)
    assert "bf16" in loop.train_step.lower(loop.state, inputs, labels).as_text()


def test_double_precision_reaches_parameters_and_loss(folder: Path) -> None:
    # in a process of its own: it sets a global setting of jax
    spec = msgspec.json.encode(workload(dtype="float64")).decode()
    done = subprocess.run(
        [sys.executable, "-c", FLOAT64, spec, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"dtypes": ["float64"], "loss": "float64"}


@pytest.mark.parametrize("donate", [True, False])
def test_a_donated_state_is_used_up_by_the_step(folder: Path, donate: bool) -> None:
    loop = TrainingLoop(workload(donate=donate), folder)
    before = params(loop)
    loop.run(1)
    loop.wait()
    assert [leaf.is_deleted() for leaf in before] == [donate] * len(before)


def test_without_jit_the_step_is_the_same(folder: Path) -> None:
    plain = TrainingLoop(workload(jit=False, donate=False), folder)
    compiled = TrainingLoop(workload(), folder)
    assert not hasattr(plain.train_step, "lower")
    for loop in (plain, compiled):
        loop.run(1)
    for mine, theirs in zip(params(plain), params(compiled), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_sequence_models_train(folder: Path, name: Literal["lstm", "transformer"]) -> None:
    loop = TrainingLoop(workload(name=name), folder)
    before = [np.asarray(leaf).copy() for leaf in params(loop)]
    loop.run(2)
    assert loop.metrics is not None
    assert np.isfinite(loop.metrics.loss)
    assert not all(np.array_equal(old, new) for old, new in zip(before, params(loop), strict=True))


def test_a_run_is_the_same_every_time(folder: Path) -> None:
    losses = []
    for _ in range(2):
        loop = TrainingLoop(workload(), folder)
        loop.run(3)
        assert loop.metrics is not None
        losses.append(float(loop.metrics.loss))
    assert losses[0] == losses[1]


def test_another_seed_is_another_run(folder: Path) -> None:
    first, second = (TrainingLoop(workload(seed=seed), folder) for seed in (0, 1))
    assert not np.array_equal(params(first)[0], params(second)[0])


def test_the_loss_is_logged_as_often_as_asked(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = msgspec.structs.replace(workload().training, log_every=2)
    loop = TrainingLoop(msgspec.structs.replace(workload(), training=chosen), folder)
    with caplog.at_level("INFO", logger="perfdoctor"):
        loop.run(5)
    assert [message.partition(":")[0] for message in caplog.messages] == ["step 2", "step 4"]


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations collected meanwhile, while the collector runs only when it is called."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(info["generation"])

    gc.disable()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.enable()


def test_the_collector_is_called_as_often_as_asked(folder: Path, collections: list[int]) -> None:
    loop = TrainingLoop(workload(process=Process(gc_collect_every=2)), folder)
    loop.run(1)
    collections.clear()
    loop.run(4)
    assert collections == [2, 2]


def test_objects_are_held_beside_the_training(folder: Path) -> None:
    assert len(TrainingLoop(workload(process=Process(live_objects=100)), folder).ballast) == 100


def test_freezing_takes_the_objects_out_of_later_collections(folder: Path) -> None:
    before = gc.get_freeze_count()
    try:
        TrainingLoop(workload(process=Process(gc_freeze=True)), folder)
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_the_cnn_learns(tmp_path: Path) -> None:
    chosen = Workload(
        model=Model(name="cnn", width=8),
        data=Data(source="memory", examples=500, image_size=16, augment=False, prefetch=0),
        training=Training(batch_size=32, learning_rate=1e-2, log_every=0),
    )
    write(chosen, tmp_path)
    loop = TrainingLoop(chosen, tmp_path)
    seen = []
    for _ in range(300):
        loop.run(1)
        assert loop.metrics is not None
        seen.append((float(loop.metrics.loss), float(loop.metrics.accuracy)))
    first, last = np.mean(seen[:20], axis=0), np.mean(seen[-50:], axis=0)
    assert last[0] < 0.5 * first[0]
    assert last[1] > 0.6  # chance is 0.1
