from pathlib import Path

import platformdirs
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.workload import Data, Model, Training, Workload
from perfdoctor.targets.reference.dataset import ensure, location, move

IMAGES = Workload(data=Data(folder="root", examples=30, image_size=8, sequence_length=7))
TOKENS = Workload(model=Model(name="lstm"), data=IMAGES.data)


def test_the_name_tells_the_kind_and_the_sizes() -> None:
    assert location(IMAGES).parent == location(TOKENS).parent == Path("root")
    assert location(IMAGES).name.startswith("images-")
    assert location(IMAGES).name.endswith("-30x8")
    assert location(TOKENS).name.startswith("tokens-")
    assert location(TOKENS).name.endswith("-30x7")


@pytest.mark.parametrize(
    "other",
    [
        Workload(data=Data(folder="root", examples=31, image_size=8)),
        Workload(data=Data(folder="root", examples=30, image_size=9)),
        Workload(data=Data(folder="elsewhere", examples=30, image_size=8)),
        TOKENS,
    ],
)
def test_other_data_lie_elsewhere(other: Workload) -> None:
    assert location(other) != location(IMAGES)


def test_what_does_not_change_the_data_does_not_change_the_place() -> None:
    other = Workload(
        model=Model(name="mlp", width=3),
        data=Data(
            folder="root", examples=30, image_size=8, source="memory", workers=2, augment=False
        ),
        training=Training(batch_size=2, seed=9),
    )
    assert location(other) == location(IMAGES)


def test_data_without_a_folder_lie_in_the_users_cache() -> None:
    assert location(Workload()).parent == platformdirs.user_cache_path("perfdoctor")


def test_data_that_are_there_are_not_written_again(tmp_path: Path) -> None:
    workload = Workload(data=Data(folder=str(tmp_path), examples=30, image_size=8))
    location(workload).mkdir()
    said: list[str] = []
    with ProcessGroups() as groups:
        assert ensure(workload, groups, said.append) == location(workload)
    assert said == []
    assert list(location(workload).iterdir()) == []


def test_data_are_written_whole_and_nothing_is_left_beside_them(tmp_path: Path) -> None:
    workload = Workload(data=Data(folder=str(tmp_path / "new"), examples=30, image_size=8))
    said: list[str] = []
    with ProcessGroups() as groups:
        folder = ensure(workload, groups, said.append)
    assert len(list(folder.glob("*/*.png"))) == 30
    assert list((tmp_path / "new").iterdir()) == [folder]
    assert str(folder) in said[0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    workload = Workload(data=Data(folder=str(tmp_path / "file")))
    with ProcessGroups() as groups, pytest.raises(UsageError, match=r"\[data\] folder") as caught:
        ensure(workload, groups, lambda _: None)
    assert str(location(workload)) in str(caught.value)


def test_whoever_comes_second_leaves_the_first_in_place(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    move(tmp_path / "mine", tmp_path / "theirs")
    assert (tmp_path / "theirs" / "content").read_text() == "theirs"


def test_a_move_that_fails_for_another_reason_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        move(tmp_path / "absent", tmp_path / "final")
