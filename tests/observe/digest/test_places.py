import pytest

from perfdoctor.observe.digest.places import is_library, loads_data, own_line, places
from perfdoctor.schema.recording import Frame

PACKAGES = "/usr/lib/python3.11/site-packages"
TRAIN: Frame = ("/home/me/train.py", 10, "main")
RUNPY: Frame = ("<frozen runpy>", 88, "_run_code")


@pytest.mark.parametrize(
    "frame",
    [
        (f"{PACKAGES}/grain/_src/python/dataset.py", 5, "worker"),
        (f"{PACKAGES}/PIL/Image.py", 900, "Image.convert"),
        (f"{PACKAGES}/torch/utils/data/dataloader.py", 5, "fetch"),
        (f"{PACKAGES}/datasets/arrow_dataset.py", 5, "format"),
        ("/home/me/loader.py", 5, "Loader.__next__"),
        ("/home/me/loader.py", 5, "Images.__getitem__"),
        ("/home/me/loader.py", 5, "Images.__getitems__"),
    ],
)
def test_frames_of_data_loaders(frame: Frame) -> None:
    assert loads_data([("/usr/lib/python3.11/queue.py", 1, "get"), frame, TRAIN])


@pytest.mark.parametrize(
    "frame",
    [
        (f"{PACKAGES}/jax/_src/pjit.py", 5, "cache_miss"),
        (f"{PACKAGES}/torch/nn/modules/module.py", 5, "_call_impl"),
        ("/home/me/train.py", 5, "next_epoch"),
        ("/home/me/grain.py", 5, "main"),
    ],
)
def test_frames_that_load_nothing(frame: Frame) -> None:
    assert not loads_data([frame, TRAIN])


@pytest.mark.parametrize("folder", ["datasets", "grain", "zarr"])
def test_a_program_is_no_loader_for_the_folder_that_it_lies_in(folder: str) -> None:
    assert not loads_data([(f"/home/me/{folder}/train.py", 10, "main")])


def test_an_empty_stack_loads_nothing() -> None:
    assert not loads_data([])


@pytest.mark.parametrize(
    "file",
    [
        f"{PACKAGES}/optax/base.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/usr/lib/python3.11/threading.py",
        "<frozen runpy>",
        "<string>",
    ],
)
def test_library_files(file: str) -> None:
    assert is_library((file, 1, "f"))


@pytest.mark.parametrize(
    "file", ["/home/me/train.py", f"{PACKAGES}/perfdoctor/targets/reference/loop.py"]
)
def test_files_of_the_program_examined(file: str) -> None:
    assert not is_library((file, 1, "f"))


def test_own_line_is_the_innermost_of_the_program() -> None:
    decode: Frame = ("/home/me/data.py", 71, "decode")
    stack = [(f"{PACKAGES}/PIL/Image.py", 900, "open"), decode, TRAIN, RUNPY]
    assert own_line(stack) == decode


def test_no_own_line_in_a_stack_of_libraries() -> None:
    assert own_line([RUNPY]) is None
    assert places([[RUNPY]], of=1) == ()


def test_places_are_functions_with_their_busiest_line() -> None:
    stacks = [[("/home/me/data.py", line, "decode")] for line in (70, 71, 71, 72)]
    (place,) = places([*stacks, [RUNPY]], of=8)
    assert (place.function, place.file, place.line) == ("decode", "/home/me/data.py", 71)
    assert place.share == 0.5


def test_functions_of_one_name_in_two_files_are_two_places() -> None:
    found = places([[("/a.py", 1, "f")], [("/b.py", 1, "f")], [("/b.py", 1, "f")]], of=3)
    assert [place.file for place in found] == ["/b.py", "/a.py"]


def test_only_the_commonest_places_are_kept() -> None:
    stacks = [[(f"/{name}.py", 1, "f")] for name in "abbcccdddd"]
    assert [place.file for place in places(stacks, of=10)] == ["/d.py", "/c.py", "/b.py"]
    assert len(places(stacks, of=10, most=1)) == 1
