from pathlib import Path

import msgspec
import pytest

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Target
from perfdoctor.schema.parts import Orders, Parts, Told
from perfdoctor.targets.named import is_named, launch, parts_told
from perfdoctor.targets.resolve import resolve


@pytest.mark.parametrize("name", ["w:w", "package.module:workload", "a:b.c.infer", "ünï:cödé"])
def test_an_object_of_a_module_is_a_target(name: str) -> None:
    assert resolve(name) == Target(kind="workload", name=name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("train.py:w", "did you mean train:w?"),
        ("src/train.py:w", "did you mean src.train:w?"),
        ("a b:c", "expected package.module:name"),
        (":c", "expected package.module:name"),
        ("a:", "expected package.module:name"),
        ("a:b:c", "expected package.module:name"),
        ("a..b:c", "expected package.module:name"),
        ("1a:b", "expected package.module:name"),
    ],
)
def test_what_is_no_name_of_one_is_refused(name: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(name)
    assert str(caught.value).startswith(f"{name} names no object")
    assert says in str(caught.value)


def test_a_file_with_a_colon_in_its_name_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a:b.py").touch()
    assert not is_named("a:b.py") and not is_named(None) and not is_named("train.py")
    assert resolve("a:b.py") == Target(kind="script", name="a:b.py")


def test_the_loop_is_told_its_change_in_a_file(tmp_path: Path) -> None:
    change, orders, told = Change(step={"donated": True}), tmp_path / "orders", tmp_path / "told"
    started = launch("m:w", change, orders, told)
    assert started.command == ("-m", "perfdoctor.targets.workload_object", str(orders))
    found = msgspec.json.decode(orders.read_bytes(), type=Orders)
    assert found == Orders(name="m:w", told=str(told), change=change)


def test_what_the_loop_tells_is_parts_or_a_sentence(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert parts_told(told) is None
    told.write_bytes(msgspec.json.encode(Told(parts=Parts(batch_size=3))))
    assert parts_told(told) == Parts(batch_size=3)
    told.write_bytes(msgspec.json.encode(Told(refused="m:w: no step")))
    with pytest.raises(UsageError, match="m:w: no step"):
        parts_told(told)
