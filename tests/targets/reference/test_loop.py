import gc
import json
import os
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


DEVICES = """
import json, sys
from pathlib import Path
import equinox as eqx, jax, msgspec, numpy as np
from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.loop import TrainingLoop

loop = TrainingLoop(msgspec.json.decode(sys.argv[1], type=Workload), Path(sys.argv[2]))
losses = []
for _ in range(5):
    loop.run(1)
    losses.append(float(loop.metrics.loss))
leaf = jax.tree.leaves(loop.state.params)[0]
print(json.dumps({"losses": losses, "devices": len(leaf.devices()), "sum": float(leaf.sum()),
                  "accuracy": float(loop.metrics.accuracy)}))
"""


def workload(
    *,
    name: Literal["mlp", "cnn", "lstm", "transformer"] = "mlp",
    dtype: Literal["float32", "bfloat16", "mixed", "float64"] = "float32",
    process: Process | None = None,
    scan: bool = True,
    kernel: int = 3,
    **training: Any,
) -> Workload:
    return Workload(
        model=Model(name=name, width=4, depth=1, scan=scan, kernel=kernel),
        data=DATA,
        training=Training(dtype=dtype, **{"batch_size": 3, "log_every": 0, **training}),
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


def test_a_step_is_made_for_each_number(folder: Path) -> None:
    loop = TrainingLoop(workload(), folder)
    loop.run_each(iter([7, 8, 9]))
    assert loop.step_count == 3


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


def after(plan: Workload, folder: Path, steps: int) -> TrainingLoop:
    """A loop that has run so many steps."""
    loop = TrainingLoop(plan, folder)
    loop.run(steps)
    loop.wait()
    return loop


def same_training(one: Workload, other: Workload, folder: Path, steps: int = 4) -> bool:
    """Whether two workloads train the same parameters, to the last bit."""
    mine, theirs = (params(after(each, folder, steps)) for each in (one, other))
    return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_schedule_gives_the_same_traced_or_static(folder: Path) -> None:
    traced, static = (
        params(after(workload(schedule=kind, schedule_every=1), folder, 4))
        for kind in ("traced", "static")
    )
    for mine, theirs in zip(traced, static, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


def test_a_schedule_lowers_the_learning_rate(folder: Path) -> None:
    loop = TrainingLoop(workload(schedule="traced", schedule_every=2), folder)
    decays: list[float] = []
    for _ in range(5):
        decays += loop.decay()
        loop.run(1)
    assert decays == pytest.approx([1.0, 1.0, 0.999, 0.999, 0.999**2])
    assert TrainingLoop(workload(), folder).decay() == ()


def test_a_static_schedule_compiles_at_each_change(folder: Path) -> None:
    static = after(workload(schedule="static", schedule_every=2), folder, 6)
    traced = after(workload(schedule="traced", schedule_every=2), folder, 6)
    assert static.train_step._cache_size() == 3
    assert traced.train_step._cache_size() == 1


def test_the_accuracy_is_the_same_by_numpy(folder: Path) -> None:
    plain, called_back = (workload(callback=kind) for kind in ("none", "metric"))
    seen = []
    for plan in (plain, called_back):
        loop = TrainingLoop(plan, folder)
        for _ in range(4):
            loop.run(1)
            assert loop.metrics is not None
            seen.append(float(loop.metrics.accuracy))
    assert seen[:4] == pytest.approx(seen[4:])
    assert same_training(plain, called_back, folder)


def test_the_accuracy_of_tokens_is_the_same_by_numpy(folder: Path) -> None:
    seen = []
    for kind in ("none", "metric"):
        loop = after(workload(name="lstm", callback=kind), folder, 1)
        assert loop.metrics is not None
        seen.append(float(loop.metrics.accuracy))
    assert seen[0] == pytest.approx(seen[1])


def test_each_step_prints_its_loss(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loop = after(workload(callback="print"), folder, 3)
    jax.effects_barrier()
    assert loop.metrics is not None
    printed = [float(line.split()[1]) for line in capfd.readouterr().out.splitlines()]
    assert len(printed) == 3
    assert printed[-1] == pytest.approx(float(loop.metrics.loss), rel=1e-4)


def test_a_state_on_the_host_trains_the_same(folder: Path) -> None:
    assert same_training(workload(), workload(state_on_host=True), folder)
    loop = after(workload(state_on_host=True), folder, 1)
    assert all(isinstance(leaf, np.ndarray) for leaf in params(loop))


def test_copies_of_the_parameters_are_kept(folder: Path) -> None:
    loop = TrainingLoop(workload(keep_every=2), folder)
    loop.run(2)
    second = [np.asarray(leaf).copy() for leaf in params(loop)]
    loop.run(3)
    assert len(loop.kept) == 2
    for kept, then in zip(jax.tree.leaves(loop.kept[0]), second, strict=True):
        np.testing.assert_array_equal(kept, then)
    assert same_training(workload(), workload(keep_every=1), folder)


def test_nothing_is_kept_by_default(folder: Path) -> None:
    assert after(workload(), folder, 2).kept == []


def test_an_lstm_trains_the_same_scanned_or_written_out(folder: Path) -> None:
    scanned, written = (
        params(after(workload(name="lstm", scan=scan), folder, 3)) for scan in (True, False)
    )
    for mine, theirs in zip(scanned, written, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kernel", [1, 4, 7])
def test_a_cnn_trains_with_kernels_of_any_size(folder: Path, kernel: int) -> None:
    loop = after(workload(name="cnn", kernel=kernel), folder, 2)
    assert params(loop)[0].shape == (4, 3, kernel, kernel)
    assert loop.metrics is not None
    assert np.isfinite(loop.metrics.loss)


def trained_on(devices: int, folder: Path) -> dict[str, Any]:
    """What a process that sees two devices trains on so many of them."""
    spec = msgspec.json.encode(workload(devices=devices, batch_size=4)).decode()
    done = subprocess.run(
        [sys.executable, "-c", DEVICES, spec, str(folder)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_two_devices_train_what_one_does(folder: Path) -> None:
    one, two = trained_on(1, folder), trained_on(2, folder)
    assert (one["devices"], two["devices"]) == (1, 2)
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-3)
    assert two["sum"] == pytest.approx(one["sum"], rel=1e-3)
    assert two["accuracy"] == one["accuracy"]


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
