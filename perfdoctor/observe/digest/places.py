"""What a sampled stack says of the main thread: loading data or not, and in which line."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from perfdoctor.schema.recording import Frame
from perfdoctor.schema.run import Place

LOADING_FILES = re.compile(
    r"/(?:site|dist)-packages/(?:grain|PIL|torch/utils/data|torchvision|tensorflow_datasets"
    r"|tensorflow/python/data|datasets|array_record|h5py|zarr|pyarrow|cv2|imageio|webdataset)/"
)
LOADING_FUNCTIONS = ("__next__", "__getitem__", "__getitems__")
LIBRARY_FILES = re.compile(r"/site-packages/|/dist-packages/|/lib/python3|^<")
OUR_PATIENT = "/perfdoctor/targets/reference/"
"""The reference loop lies in site-packages when installed, but is the program examined."""


@cache
def is_loading(frame: Frame) -> bool:
    """Whether this frame is part of a data loader."""
    file, _, function = frame
    return bool(LOADING_FILES.search(file)) or function.rpartition(".")[2] in LOADING_FUNCTIONS


@cache
def is_library(frame: Frame) -> bool:
    """Whether this frame is not the user's own code."""
    return bool(LIBRARY_FILES.search(frame[0])) and OUR_PATIENT not in frame[0]


def loads_data(stack: Sequence[Frame]) -> bool:
    """Whether the main thread was in a data loader."""
    return any(is_loading(frame) for frame in stack)


def own_line(stack: Sequence[Frame]) -> Frame | None:
    """The innermost line of the user's own code."""
    return next((frame for frame in stack if not is_library(frame)), None)


def places(stacks: Iterable[Sequence[Frame]], of: int, most: int = 3) -> tuple[Place, ...]:
    """The user's functions in which most of the stacks were, with their busiest lines.

    `of`: the number of samples that the shares are counted in.
    """
    lines = Counter(line for stack in stacks if (line := own_line(stack)))
    functions: Counter[tuple[str, str]] = Counter()
    for (file, _, function), count in lines.items():
        functions[file, function] += count
    found = []
    for (file, function), count in functions.most_common(most):
        its_lines = [frame for frame in lines if (frame[0], frame[2]) == (file, function)]
        busiest = max(its_lines, key=lambda frame: lines[frame])
        found.append(Place(function=function, file=file, line=busiest[1], share=count / of))
    return tuple(found)
