import os
import stat
from pathlib import Path

import pytest

from perfdoctor.files import check_folder, current_umask, write_whole
from perfdoctor.schema.errors import UsageError

as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def test_writes_the_content_and_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "report.json", b"{}")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
        ("report.json", b"{}")
    ]


def test_replaces_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("a longer text than the new one")
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"


def test_a_reader_of_the_old_file_keeps_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(b"old")
    with file.open("rb") as reader:
        write_whole(file, b"new")
        assert reader.read() == b"old"


def test_the_file_has_the_usual_permissions(tmp_path: Path) -> None:
    ordinary, ours = tmp_path / "ordinary", tmp_path / "ours"
    ordinary.write_bytes(b"")
    write_whole(ours, b"")
    assert ours.stat().st_mode == ordinary.stat().st_mode


def test_the_umask_is_read_and_left_as_it_was() -> None:
    before = os.umask(0o027)
    try:
        assert current_umask() == 0o027
        assert current_umask() == 0o027
    finally:
        os.umask(before)


def test_a_directory_in_the_place_of_the_file_is_an_error_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"results cannot be written: Is a directory"):
        write_whole(folder, b"{}")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_does_not_exist_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.json cannot be written: No such file"):
        write_whole(tmp_path / "nowhere" / "report.json", b"{}")


def test_what_is_no_ordinary_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"{}")
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 100) == b"{}"
    finally:
        os.close(reader)


def test_a_good_place_for_a_file_passes(tmp_path: Path) -> None:
    check_folder(tmp_path / "new.json")
    (tmp_path / "old.json").write_text("{}")
    check_folder(tmp_path / "old.json")
    assert [each.name for each in tmp_path.iterdir()] == ["old.json"]


def test_a_directory_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory; expected the name of a file"):
        check_folder(tmp_path)


def test_a_folder_that_does_not_exist_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the folder .*nowhere does not exist"):
        check_folder(tmp_path / "nowhere" / "report.json")


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        check_folder(tmp_path / "notes.txt" / "report.json")


@as_user
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="can't be written to"):
        check_folder(closed / "report.json")
    with pytest.raises(UsageError, match="Permission denied"):
        write_whole(closed / "report.json", b"{}")
