"""What people already watch, read back by others' readers."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from perfdoctor.listener import Csv, JsonLines, Prometheus, TensorBoard
from perfdoctor.schema.errors import UsageError
from tests.listener.test_line import FULL


def test_a_table_that_is_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "lines.csv"
    for iteration in (10, 20):
        table = Csv(file)
        table(msgspec.structs.replace(FULL, iteration=iteration))
        table.close()
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["iteration"] for row in rows] == ["10", "20"]
    assert rows[0]["gc0"] == "2" and rows[0]["gc1"] == "0" and float(rows[0]["gc2_ms"]) == 24.0
    assert float(rows[1]["iteration_ms"]) == 17.2


def test_what_prometheus_reads(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    file = tmp_path / "loop.prom"
    write = Prometheus(file)
    write(msgspec.structs.replace(FULL, compiles=2))
    write(msgspec.structs.replace(FULL, compiles=1, score=None))
    families = {each.name: each for each in text_string_to_metric_families(file.read_text())}
    value = {each.name: each for family in families.values() for each in family.samples}
    assert value["perfdoctor_iteration_seconds"].value == pytest.approx(0.0172)
    assert value["perfdoctor_compiles_total"].value == 3
    collected = families["perfdoctor_gc_collections"].samples
    assert {each.labels["generation"]: each.value for each in collected} == {"0": 4, "1": 0, "2": 2}
    assert families["perfdoctor_gc_seconds"].type == "counter"
    assert "perfdoctor_score" not in families


def test_what_tensorboard_reads(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    board = TensorBoard(tmp_path)
    board(FULL)
    board.close()
    (file,) = tmp_path.glob("events.out.tfevents.*")
    found: dict[str, tuple[int, float]] = {}
    content = file.read_bytes()
    while content:  # TFRecord: a length of 8 bytes, its checksum of 4, the record, and 4 more
        length = int.from_bytes(content[:8], "little")
        event = Event.FromString(content[12 : 12 + length])
        found |= {v.tag: (event.step, v.simple_value) for v in event.summary.value}
        content = content[16 + length :]
    assert {step for step, _ in found.values()} == {30}
    assert found["perfdoctor/iteration_ms"][1] == pytest.approx(17.2)
    assert found["perfdoctor/score"][1] == pytest.approx(0.7229)
    assert found["perfdoctor/gc_ms"][1] == pytest.approx(2.43)


@pytest.mark.parametrize("kind", ["torch", "clu", "flax"])
def test_a_writer_that_the_program_has(kind: str) -> None:
    told: dict[str, tuple[int, float]] = {}

    def add(name: str, value: float, step: int) -> None:
        told[name] = (step, value)

    def add_all(step: int, values: dict[str, float]) -> None:
        told.update({name: (step, value) for name, value in values.items()})

    writers: dict[str, Any] = {
        "torch": SimpleNamespace(add_scalar=add, flush=lambda: None),
        "clu": SimpleNamespace(write_scalars=add_all),
        "flax": SimpleNamespace(scalar=add),
    }
    board = TensorBoard(writers[kind])
    board(FULL)
    board.close()
    assert told["perfdoctor/etl_ms"] == (30, 0.1)


def test_wrong_use_is_a_sentence(tmp_path: Path) -> None:
    for kind in (Csv, JsonLines, Prometheus):
        with pytest.raises(UsageError, match=r"the folder .* does not exist"):
            kind(tmp_path / "no" / "file")
    with pytest.raises(UsageError, match="expected a folder, or a writer"):
        TensorBoard(3)
