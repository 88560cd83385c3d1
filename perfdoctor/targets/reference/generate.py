"""Write the deterministic data set of the reference loop into a folder that exists.

Run as a program, `python -m perfdoctor.targets.reference.generate WORKLOAD.json FOLDER`; ends with
1 and one sentence on stderr where it cannot write.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image

from perfdoctor.schema.workload import Data, Workload

CLASSES = 10
"""Kinds of images in the generated data set."""
VOCABULARY = 256
"""Different tokens in the generated texts: bytes."""
CHUNK = 500
"""Images in memory at a time."""


def gratings(labels: npt.NDArray[np.int64], size: int, seed: int) -> npt.NDArray[np.uint8]:
    """Noisy coloured stripes, uint8[n, size, size, 3]; the class is their direction and colour."""
    random = np.random.default_rng(seed)
    count = len(labels)
    angle = np.pi * labels / CLASSES + random.normal(0, 0.06, count)
    phase = random.uniform(0, 2 * np.pi, count)
    y, x = np.mgrid[0:size, 0:size] / size
    along = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
    wave = np.sin(2 * np.pi * 4 * along + phase[:, None, None])
    tint = 0.5 + 0.3 * np.cos(labels[:, None] + np.arange(3))
    pixels = 128 + 60 * wave[..., None] * tint[:, None, None, :]
    pixels += random.normal(0, 40, (count, size, size, 3))
    images: npt.NDArray[np.uint8] = np.clip(pixels, 0, 255).astype(np.uint8)
    return images


def write_images(data: Data, folder: Path) -> None:
    """PNG files in class folders, and the same images as two arrays, uint8 and int32."""
    labels = np.arange(data.examples) % CLASSES
    for name in range(CLASSES):
        (folder / f"{name:02d}").mkdir()
    shape = (data.examples, data.image_size, data.image_size, 3)
    with (folder / "images.npy").open("wb") as records:  # a memory map would die of a full disk
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(records, header)
        for start in range(0, data.examples, CHUNK):
            part = labels[start : start + CHUNK]
            images = gratings(part, data.image_size, seed=start)
            records.write(images.tobytes())
            for index, (label, image) in enumerate(zip(part, images, strict=True), start):
                Image.fromarray(image).save(folder / f"{label:02d}" / f"{index:06d}.png")
    np.save(folder / "labels.npy", labels.astype(np.int32))


def write_tokens(data: Data, folder: Path) -> None:
    """A Markov chain over the vocabulary, int32[n]; its entropy is 0.91 nats a token."""
    random = np.random.default_rng(0)
    successors = random.integers(0, VOCABULARY, (VOCABULARY, 4)).tolist()
    length = data.examples * data.sequence_length + 1
    draws = random.choice(4, length, p=[0.7, 0.15, 0.1, 0.05]).tolist()
    tokens = [0]
    for draw in draws[1:]:
        tokens.append(successors[tokens[-1]][draw])
    np.save(folder / "tokens.npy", np.asarray(tokens, np.int32))


def write(workload: Workload, folder: Path) -> None:
    """Fill `folder` with the files that this workload reads."""
    if workload.model.name in ("lstm", "transformer"):
        write_tokens(workload.data, folder)
    else:
        write_images(workload.data, folder)


if __name__ == "__main__":
    try:
        write(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Workload), Path(sys.argv[2]))
    except OSError as error:
        sys.exit(error.strerror or str(error))
