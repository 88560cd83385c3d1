import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from perfdoctor.schema.workload import Data, Model, Workload
from perfdoctor.targets.reference.generate import CHUNK, CLASSES, VOCABULARY, gratings, write

DATA = Data(examples=24, image_size=8, sequence_length=6)
IMAGES = Workload(data=DATA)
TOKENS = Workload(model=Model(name="transformer"), data=DATA)


def contents(folder: Path) -> dict[str, str]:
    """The hash of each file by its name."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def written(workload: Workload, folder: Path) -> Path:
    folder.mkdir()
    write(workload, folder)
    return folder


@pytest.mark.parametrize("workload", [IMAGES, TOKENS], ids=["images", "tokens"])
def test_the_same_files_every_time(tmp_path: Path, workload: Workload) -> None:
    first = contents(written(workload, tmp_path / "a"))
    assert first
    assert contents(written(workload, tmp_path / "b")) == first


def test_images_are_one_file_each_and_two_arrays(tmp_path: Path) -> None:
    folder = written(IMAGES, tmp_path / "a")
    images, labels = np.load(folder / "images.npy"), np.load(folder / "labels.npy")
    assert (images.shape, images.dtype) == ((24, 8, 8, 3), np.uint8)
    assert (labels.shape, labels.dtype) == ((24,), np.int32)
    assert len(list(folder.glob("*/*.png"))) == 24


def test_classes_are_equally_frequent(tmp_path: Path) -> None:
    labels = np.load(written(IMAGES, tmp_path / "a") / "labels.npy")
    counts = np.bincount(labels, minlength=CLASSES)
    assert counts.max() - counts.min() <= 1


def test_images_of_all_chunks_differ(tmp_path: Path) -> None:
    workload = Workload(data=Data(examples=CHUNK + 20, image_size=8))
    images = np.load(written(workload, tmp_path / "a") / "images.npy")
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == CHUNK + 20


def test_tokens_are_of_the_vocabulary(tmp_path: Path) -> None:
    tokens = np.load(written(TOKENS, tmp_path / "a") / "tokens.npy")
    assert (tokens.shape, tokens.dtype) == ((24 * 6 + 1,), np.int32)
    assert 0 <= tokens.min() <= tokens.max() < VOCABULARY


def test_tokens_can_be_predicted_from_the_one_before(tmp_path: Path) -> None:
    workload = Workload(model=Model(name="lstm"), data=Data(examples=2000, sequence_length=64))
    tokens = np.load(written(workload, tmp_path / "a") / "tokens.npy")
    successors = {(int(a), int(b)) for a, b in pairwise(tokens)}
    assert len(successors) <= 4 * VOCABULARY


def test_gratings_depend_on_the_seed() -> None:
    labels = np.arange(4)
    assert not np.array_equal(gratings(labels, 8, seed=0), gratings(labels, 8, seed=1))
