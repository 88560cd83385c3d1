from pathlib import Path

import pytest
from msgspec.structs import replace

from perfdoctor.observe.lines import AROUND, LARGEST_BYTES, MOST, WIDEST, lines_of, places_in
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Place
from tests.recorded import recorded


def naming(file: Path, *lines: int) -> Observation:
    """An observation whose loading is in these lines."""
    seen = recorded("healthy")
    assert seen.steps is not None
    places = tuple(Place(function="load", file=str(file), line=n, share=0.1) for n in lines)
    return replace(seen, steps=replace(seen.steps, etl_places=places))


def program(folder: Path, text: str = "", name: str = "train.py") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text or "".join(f"line {n}\n" for n in range(1, 21)), encoding="utf-8")
    return file


def test_a_line_comes_with_those_around_it(tmp_path: Path) -> None:
    (found,) = lines_of(naming(program(tmp_path), 10), [tmp_path])
    assert found.place == f"{tmp_path.name}/train.py:10"
    assert (found.line, found.first_line) == (10, 10 - AROUND)
    assert found.lines == tuple(f"line {n}" for n in range(10 - AROUND, 10 + AROUND + 1))


@pytest.mark.parametrize(("line", "first", "count"), [(1, 1, 3), (20, 18, 3)])
def test_at_the_ends_there_are_fewer(tmp_path: Path, line: int, first: int, count: int) -> None:
    (found,) = lines_of(naming(program(tmp_path), line), [tmp_path])
    assert (found.first_line, len(found.lines)) == (first, count)


@pytest.mark.parametrize("line", [0, -1, 21])
def test_a_line_that_is_not_there_has_none(tmp_path: Path, line: int) -> None:
    assert lines_of(naming(program(tmp_path), line), [tmp_path]) == ()


def test_a_place_within_a_text_counts_too(tmp_path: Path) -> None:
    file = program(tmp_path)
    assert list(places_in({"reason": f"defined at {file}:7, called"})) == [(str(file), 7)]


def test_what_lies_elsewhere_is_not_read(tmp_path: Path) -> None:
    outside, inside = program(tmp_path / "other"), tmp_path / "mine"
    inside.mkdir()
    assert lines_of(naming(outside, 3), [inside]) == ()
    (inside / "link.py").symlink_to(outside)
    assert lines_of(naming(inside / "link.py", 3), [inside]) == ()
    assert lines_of(naming(inside / ".." / "other" / "train.py", 3), [inside]) == ()


@pytest.mark.parametrize(
    "name", [".venv/lib/python3.11/site-packages/jax/a.py", "secrets.txt", "notes.pyc"]
)
def test_libraries_and_other_files_are_not_read(tmp_path: Path, name: str) -> None:
    assert lines_of(naming(program(tmp_path, name=name), 3), [tmp_path]) == ()


def test_no_folder_no_huge_file_and_no_missing_one(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    huge = program(tmp_path, "x" * (LARGEST_BYTES + 1), "huge.py")
    for file in (tmp_path / "folder.py", huge, tmp_path / "missing.py", Path("/\0.py")):
        assert lines_of(naming(file, 1), [tmp_path]) == ()


def test_wide_lines_are_cut_and_other_bytes_are_shown_as_such(tmp_path: Path) -> None:
    file = program(tmp_path, "y" * 1000)
    (found,) = lines_of(naming(file, 1), [tmp_path])
    assert found.lines == ("y" * WIDEST,)
    file.write_bytes(b"caf\xe9\n")
    (found,) = lines_of(naming(file, 1), [tmp_path])
    assert found.lines == ("caf\ufffd",)


def test_no_more_than_so_many_and_each_once(tmp_path: Path) -> None:
    file = program(tmp_path, "\n" * 500)
    assert len(lines_of(naming(file, *range(1, 400)), [tmp_path])) == MOST
    assert len(lines_of(naming(file, 3, 3, 3), [tmp_path])) == 1
