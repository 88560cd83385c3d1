"""What a sampled stack says of the main thread: what it was busy with, and in which line."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Literal

from perfdoctor.observe.digest.functions import computes, holds_examples
from perfdoctor.observe.digest.source import Caller, caller, is_generator, sleeps
from perfdoctor.schema.recording import Frame
from perfdoctor.schema.run import Place

Activity = Literal["loading", "logging", "other"]
LOADING_FILES = re.compile(
    r"/(?:site|dist)-packages/(?:grain|PIL|torch/utils/data|torchvision|tensorflow_datasets"
    r"|tensorflow/python/data|datasets|array_record|h5py|zarr|pyarrow|cv2|imageio|webdataset)/"
    r"|/lib/python3[^/]*/json/(?:decoder|scanner)\.py$"
)
"""Files of libraries, and of Python, that load and prepare data."""
HANDING_OVER = re.compile(
    r"/lib/python3[^/]*/(?:queue|(?:concurrent/futures|multiprocessing)/\w+)\.py$"
)
"""Files of Python in whose functions a thread waits for what others have prepared."""
GIVING = ("put", "submit", "send")
"""Those functions of them in which it hands something to others."""
NEXT, ITEMS = "__next__", ("__getitem__", "__getitems__")
"""Methods of data loaders: that of an iterator, and those of whatever has items, a data set say."""
LOGGING_FILES = re.compile(
    r"/(?:site|dist)-packages/(?:orbax|tensorboardX|tensorboard|wandb|mlflow|tqdm|rich|absl/logging"
    r"|flax/training/checkpoints|clu/metric_writers|matplotlib|torch/utils/tensorboard)"
    r"|/lib/python3[^/]*/(?:logging|json|pickle\.py|csv\.py)"
)
"""Files of libraries, and of Python, that log, save and plot."""
LOGGING_FUNCTIONS = re.compile(
    r"(?:^|\.|_)(?:(?P<log>log)|save|write|print|dump|plot|report|checkpoint)(?:_|$|ging|point)",
    re.IGNORECASE,
)
"""Names of functions that log, save or plot."""
LOGARITHMS = re.compile(
    r"log_(?:probs?|p|q|pdf|pmf|cdf|likelihoods?|density|softmax|sigmoid|sum_?exp|mean_?exp|det"
    r"|odds|ratios?|scale|var|std|prior|posterior|joint|mel)(?:_|$)",
    re.IGNORECASE,
)
"""Names of functions that compute a logarithm, where the source can't be read."""
LIBRARY_FILES = re.compile(r"/site-packages/|/dist-packages/|/lib/python3|^<|^/?zip")
"""Files of Python and of installed packages."""
OURS = re.compile(r"/perfdoctor/(?:observe|injection|trials)/")
"""Files of perfdoctor that work in the observed process."""
OF_JAX = re.compile(r"/(?:site|dist)-packages/jax(?:lib)?/")
"""Files of jax itself."""
PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)/")
"""The installed package that a file belongs to."""
INSIDE_JAX = re.compile(r"/(?:site|dist)-packages/(?:jax|jaxlib|flax|haiku|equinox|optax|chex)/")
"""Files of jax, and of libraries whose functions are calls of it."""


@dataclass(frozen=True)
class Code:
    """Tells the user's own code, and the way in it to the call of the step."""

    own: tuple[str, ...] = ()
    """Folders that are the user's, even if they lie among the installed packages."""
    calls: Sequence[Sequence[Frame]] = ()
    """Stacks from which the step was called, innermost frame first."""
    seen: Sequence[Sequence[Frame]] = ()
    """All stacks, where the step is many calls: generators that never call jax are loaders then."""
    gets_batches: bool = True
    """Whether what other threads hand over is data for the step; it may be an actor's results, or
    the requests of a server."""
    handed: frozenset[tuple[str, int]] = frozenset()
    """Lines, (file, line), that hand over what is no new data: that is no loading."""
    _callers: dict[tuple[str, str], Caller] = field(default_factory=dict)

    @cached_property
    def way(self) -> dict[tuple[str, str], set[int]]:
        """The user's functions that lead to the call of the step, (file, name), and their lines."""
        found: dict[tuple[str, str], set[int]] = {}
        for stack in self.calls:
            for file, line, function in stack:
                if self.is_own(file):
                    found.setdefault((file, function), set()).add(line)
        return found

    @cached_property
    def dispatching(self) -> set[tuple[str, str]]:
        """The functions, (file, name), that were seen to call jax."""
        return {
            (file, function)
            for stack in self.seen
            if any(INSIDE_JAX.search(frame[0]) for frame in stack)
            for file, _, function in stack
        }

    def is_own(self, file: str) -> bool:
        """Whether a file is the user's own code."""
        if OURS.search(file):
            return False
        path = str(Path(file))
        inner = next((path[len(f) :] for f in self.own if path.startswith(f)), file)
        return not LIBRARY_FILES.search(inner)

    def caller(self, function: tuple[str, str]) -> Caller:
        """What the source says of one of them."""
        if function not in self._callers:
            each = [caller(function[0], line) for line in self.way[function]]
            calling = frozenset[int]().union(*(one.calling for one in each))
            feeding = frozenset[int]().union(*(one.feeding for one in each)) - calling
            self._callers[function] = Caller(calling, feeding)
        return self._callers[function]

    def activity(self, stack: Sequence[Frame]) -> Activity:
        """What the main thread was busy with, innermost frame first."""
        own = self.own_line(stack)
        if own is not None and own[:2] in self.handed and self.is_in_jax(stack):
            return "other"
        on_way = next(
            (i for i, (file, _, name) in enumerate(stack) if (file, name) in self.way), None
        )
        inner = stack if on_way is None else stack[:on_way]
        if not self.gets_batches and any(map(is_given, inner)):
            return "other"
        if any(self.is_loading(frame) for frame in inner):
            return "loading"
        if on_way is not None and self.prepares(stack, on_way):
            return "loading"
        if any(is_logging(frame) for frame in inner):
            return "logging"
        return "other"

    def prepares(self, stack: Sequence[Frame], on_way: int) -> bool:
        """Whether the function that calls the step is in a line that prepares its arguments."""
        inner = stack[:on_way]
        if any(INSIDE_JAX.search(file) for file, _, _ in inner):
            return False  # an operation of its own, not a loader
        file, line, name = stack[on_way]
        source = self.caller((file, name))
        among_arguments = any(self.is_own(frame[0]) or is_given(frame) for frame in inner)
        return line in source.feeding or (line in source.calling and among_arguments)

    def is_loading(self, frame: Frame) -> bool:
        """Whether this frame is part of a data loader."""
        file, line, function = frame
        if LOADING_FILES.search(file):
            return True
        if not self.is_own(file):
            return False
        method = function.rpartition(".")[2]
        if method == NEXT or (method in ITEMS and holds_examples(file, line) is not False):
            return True
        generates = bool(self.seen) and (file, function) not in self.dispatching
        return generates and is_generator(file, line)

    def is_in_jax(self, stack: Sequence[Frame]) -> bool:
        """Whether the user's innermost line waits for Python of jax, or of a library on it."""
        inner = takewhile(lambda frame: not self.is_own(frame[0]), stack)
        return any(INSIDE_JAX.search(file) for file, _, _ in inner)

    def is_asleep(self, stack: Sequence[Frame]) -> bool:
        """Whether the user's own code is in a line that sleeps: nothing of Python is above it."""
        return bool(stack) and self.is_own(stack[0][0]) and sleeps(*stack[0][:2])

    def own_line(self, stack: Sequence[Frame]) -> Frame | None:
        """The innermost line of the user's own code."""
        return next((frame for frame in stack if self.is_own(frame[0])), None)

    def places(
        self, stacks: Iterable[Sequence[Frame]], of: int, most: int = 3
    ) -> tuple[Place, ...]:
        """The user's functions in which most of the stacks were, with their busiest lines.

        `of`: the number of samples that the shares are counted in.
        """
        lines = Counter(line for stack in stacks if (line := self.own_line(stack)))
        functions: Counter[tuple[str, str]] = Counter()
        for (file, _, function), count in lines.items():
            functions[file, function] += count
        found = []
        for (file, function), count in functions.most_common(most):
            its_lines = [frame for frame in lines if (frame[0], frame[2]) == (file, function)]
            busiest = max(its_lines, key=lambda frame: lines[frame])
            found.append(Place(function=function, file=file, line=busiest[1], share=count / of))
        return tuple(found)


def is_given(frame: Frame) -> bool:
    """Whether this frame waits for what another thread or process has prepared."""
    file, _, function = frame
    return bool(HANDING_OVER.search(file)) and function.rpartition(".")[2] not in GIVING


def is_logging(frame: Frame) -> bool:
    """Whether this frame writes a log, a checkpoint or a plot."""
    file, line, function = frame
    if LOGGING_FILES.search(file):
        return True
    found = LOGGING_FUNCTIONS.search(function)
    return found is not None and not (found["log"] and is_logarithm(file, line, function))


def is_logarithm(file: str, line: int, function: str) -> bool:
    """Whether a function that is called log computes something, and writes nothing."""
    told = computes(file, line)
    return bool(LOGARITHMS.search(function)) if told is None else told


def waiting_library(stacks: Sequence[Sequence[Frame]]) -> str:
    """The package that waits in most of the stacks; empty if it is the user's own code, by jax."""
    waiting = Counter(package_of(stack) for stack in stacks)
    name, count = waiting.most_common(1)[0] if waiting else ("", 0)
    return name if count > len(stacks) / 2 else ""


def package_of(stack: Sequence[Frame]) -> str:
    """The installed package, other than jax, whose code is the first that is not of jax."""
    file = next((file for file, _, _ in stack if not OF_JAX.search(file)), "")
    found = PACKAGE.search(file)
    return found[1] if found else ""
