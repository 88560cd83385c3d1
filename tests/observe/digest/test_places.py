from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest.places import Code
from perfdoctor.schema.recording import Frame

PACKAGES = "/usr/lib/python3.11/site-packages"
TRAIN: Frame = ("/home/me/train.py", 10, "main")
RUNPY: Frame = ("<frozen runpy>", 88, "_run_code")
JIT: Frame = (f"{PACKAGES}/jax/_src/pjit.py", 5, "cache_miss")
STEPS = Code(calls=[[JIT, TRAIN, RUNPY]])
"""In which `main` calls the step; its source can't be read."""


@pytest.mark.parametrize(
    "frame",
    [
        (f"{PACKAGES}/grain/_src/python/dataset.py", 5, "worker"),
        (f"{PACKAGES}/PIL/Image.py", 900, "Image.convert"),
        (f"{PACKAGES}/torch/utils/data/dataloader.py", 5, "fetch"),
        (f"{PACKAGES}/datasets/arrow_dataset.py", 5, "format"),
        (f"{PACKAGES}/h5py/_hl/dataset.py", 5, "read"),
        ("/home/me/loader.py", 5, "Loader.__next__"),
        ("/home/me/loader.py", 5, "Images.__getitem__"),
        ("/home/me/loader.py", 5, "Images.__getitems__"),
    ],
)
@pytest.mark.parametrize("code", [Code(), STEPS], ids=["no steps", "steps"])
def test_frames_of_data_loaders(frame: Frame, code: Code) -> None:
    assert code.activity([("/usr/lib/python3.11/queue.py", 1, "get"), frame, TRAIN]) == "loading"


@pytest.mark.parametrize(
    "frame",
    [
        JIT,
        (f"{PACKAGES}/jax/_src/array.py", 5, "ArrayImpl.__getitem__"),
        (f"{PACKAGES}/flax/nnx/module.py", 5, "Module.__getitem__"),
        (f"{PACKAGES}/torch/nn/modules/module.py", 5, "_call_impl"),
        ("/home/me/train.py", 5, "next_epoch"),
        ("/home/me/grain.py", 5, "main"),
    ],
)
@pytest.mark.parametrize("code", [Code(), STEPS], ids=["no steps", "steps"])
def test_frames_that_load_nothing(frame: Frame, code: Code) -> None:
    assert code.activity([frame, TRAIN]) == "other"


def test_to_hand_over_what_is_no_new_data_is_no_loading() -> None:
    line: Frame = ("/home/me/loader.py", 5, "Replay.__getitem__")
    put: Frame = (f"{PACKAGES}/jax/_src/numpy/array_constructors.py", 5, "array")
    assert Code().activity([put, line, TRAIN]) == "loading"
    code = Code(handed=frozenset({line[:2]}))
    assert code.activity([put, line, TRAIN]) == "other"
    assert code.activity([line, TRAIN]) == "loading"  # what else is done there


@pytest.mark.parametrize("folder", ["datasets", "grain", "zarr", "wandb", "logging"])
def test_a_program_is_no_loader_for_the_folder_that_it_lies_in(folder: str) -> None:
    assert Code().activity([(f"/home/me/{folder}/train.py", 10, "main")]) == "other"


@pytest.mark.parametrize(
    "frame",
    [
        (f"{PACKAGES}/orbax/checkpoint/manager.py", 5, "wait"),
        (f"{PACKAGES}/wandb/sdk/wandb_run.py", 5, "Run.history"),
        (f"{PACKAGES}/tqdm/std.py", 5, "tqdm.update"),
        ("/usr/lib/python3.11/logging/__init__.py", 5, "Logger.info"),
        ("/usr/lib/python3.11/json/encoder.py", 5, "iterencode"),
        ("/home/me/train.py", 5, "save_checkpoint"),
        ("/home/me/train.py", 5, "Trainer.log"),
        ("/home/me/train.py", 5, "write_metrics"),
        ("/home/me/train.py", 5, "Logger._log_scalars"),
    ],
)
@pytest.mark.parametrize("code", [Code(), STEPS], ids=["no steps", "steps"])
def test_frames_that_write_logs_and_checkpoints(frame: Frame, code: Code) -> None:
    assert code.activity([frame, TRAIN]) == "logging"


@pytest.mark.parametrize(
    "function", ["login", "catalogue", "dialog", "softmax", "unsaved", "logits"]
)
def test_names_that_only_look_like_it(function: str) -> None:
    assert Code().activity([("/home/me/train.py", 5, function), TRAIN]) == "other"


@pytest.mark.parametrize(
    "function",
    ["Policy.log_prob", "log_softmax", "log_likelihood", "Normal._log_pdf", "log_sum_exp"],
)
def test_logarithms_are_no_logs(function: str) -> None:
    assert Code().activity([("/home/me/train.py", 5, function), TRAIN]) == "other"


COMPUTING = """\
class Policy:
    def log_normaliser(self, x):
        return x.sum()

class Config:
    def __getitem__(self, key):
        return self.values[key]

    def keys(self):
        return self.values.keys()
"""


def test_what_the_source_tells_goes_before_the_name(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(COMPUTING)
    logarithm: Frame = (str(file), 3, "Policy.log_normaliser")
    configuration: Frame = (str(file), 7, "Config.__getitem__")
    assert Code().activity([logarithm, TRAIN]) == "other"
    assert Code().activity([configuration, TRAIN]) == "other"


def test_what_reads_a_file_of_examples_loads_and_logs_nothing() -> None:
    stack: list[Frame] = [
        ("/usr/lib/python3.11/json/decoder.py", 353, "JSONDecoder.raw_decode"),
        ("/usr/lib/python3.11/json/__init__.py", 346, "loads"),
        TRAIN,
    ]
    assert Code().activity(stack) == "loading"


def test_what_a_loader_logs_is_loading() -> None:
    stack: list[Frame] = [
        ("/usr/lib/python3.11/logging/__init__.py", 5, "Logger.info"),
        ("/home/me/loader.py", 5, "Loader.__next__"),
        TRAIN,
    ]
    assert Code().activity(stack) == "loading"


def test_what_is_behind_the_call_of_the_step_says_nothing() -> None:
    outer: list[Frame] = [("/home/me/run.py", 3, "save_everything"), RUNPY]
    assert STEPS.activity([TRAIN, *outer]) == "other"
    assert Code().activity([TRAIN, *outer]) == "logging"


def test_an_empty_stack_is_other_work() -> None:
    assert Code().activity([]) == STEPS.activity([]) == "other"


SOURCE = """\
def batches(data):
    for rows in data:
        yield decode(rows)

def decode(rows):
    return rows + 1

def metrics(loss):
    return float(loss)

def train(state, data):
    for rows in batches(data):
        batch = decode(rows)
        state, loss = step(state, batch)
        metrics(loss)
    return state

def other(state):
    return step(state, make())
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A script that trains."""
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SOURCE.splitlines(), 1) if text in line)


def trained(file: str) -> Code:
    """In which `train` calls the step."""
    return Code(calls=[[JIT, (file, line_of("state, loss = step"), "train")]])


@pytest.mark.parametrize(
    ("line", "inner", "activity"),
    [
        ("for rows in batches", "batches", "loading"),
        ("for rows in batches", None, "loading"),
        ("batch = decode(rows)", "decode", "loading"),
        ("batch = decode(rows)", None, "loading"),
        ("state, loss = step", None, "other"),
        ("state, loss = step", "decode", "loading"),
        ("metrics(loss)", "metrics", "other"),
        ("metrics(loss)", None, "other"),
    ],
)
def test_lines_that_prepare_the_arguments_of_the_step_load(
    file: str, line: str, inner: str | None, activity: str
) -> None:
    stack: list[Frame] = [(file, line_of(line), "train"), RUNPY]
    if inner is not None:
        stack.insert(0, (file, 2, inner))
    assert trained(file).activity(stack) == activity


LIBRARY = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("inner", "activity"),
    [
        (("queue.py", "Queue.get"), "loading"),
        (("concurrent/futures/_base.py", "Future.result"), "loading"),
        (("multiprocessing/queues.py", "Queue.get"), "loading"),
        (("queue.py", "Queue.put"), "other"),
        (("threading.py", "Event.wait"), "other"),
        (("random.py", "Random.shuffle"), "other"),
    ],
)
def test_what_others_have_prepared_is_loaded_where_it_is_waited_for_in_the_line_of_the_step(
    file: str, inner: tuple[str, str], activity: str
) -> None:
    waiting: Frame = (f"{LIBRARY}/threading.py", 320, "Condition.wait")
    within: Frame = (f"{LIBRARY}/{inner[0]}", 171, inner[1])
    stack = [waiting, within, (file, line_of("state, loss = step"), "train"), RUNPY]
    assert trained(file).activity(stack) == activity
    assert replace(trained(file), gets_batches=False).activity(stack) == "other"


def test_an_operation_of_jax_among_the_arguments_is_no_loading(file: str) -> None:
    stack = [JIT, (file, line_of("batch = decode"), "train")]
    assert trained(file).activity(stack) == "other"


def test_a_function_that_calls_the_step_in_two_ways(file: str) -> None:
    caller = Code(
        calls=[
            [(file, line_of("state, loss = step"), "train")],
            [(file, line_of("return step(state, make"), "other")],
        ]
    )
    assert set(caller.way) == {(file, "train"), (file, "other")}
    assert caller.activity([(file, line_of("batch = decode"), "train")]) == "loading"


def test_the_way_to_the_step_leaves_libraries_out(file: str) -> None:
    loop: Frame = (f"{PACKAGES}/trainer/loop.py", 8, "fit")
    code = Code(calls=[[JIT, loop, (file, 12, "train")], [(file, 15, "train")]])
    assert code.way == {(file, "train"): {12, 15}}


@pytest.mark.parametrize(
    "file",
    [
        f"{PACKAGES}/optax/base.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/usr/lib/python3.11/threading.py",
        "<frozen runpy>",
        "<string>",
        "/src/perfdoctor/observe/agent/watch.py",
        "/src/perfdoctor/injection/bootstrap.py",
        f"{PACKAGES}/perfdoctor/trials/inside.py",
    ],
)
def test_library_files(file: str) -> None:
    assert not Code().is_own(file)


@pytest.mark.parametrize("file", ["/home/me/train.py", "train.py", "/src/perfdoctor_x/observe.py"])
def test_files_of_the_program_examined(file: str) -> None:
    assert Code().is_own(file)


def test_a_program_may_lie_among_the_installed_packages() -> None:
    loop = f"{PACKAGES}/perfdoctor/targets/reference/loop.py"
    assert not Code().is_own(loop)
    assert Code(own=(f"{PACKAGES}/perfdoctor/targets",)).is_own(loop)
    assert not Code(own=(f"{PACKAGES}/perfdoctor/targets",)).is_own(f"{PACKAGES}/optax/base.py")


def test_an_environment_inside_the_programs_folder_is_not_the_users() -> None:
    library = "/home/me/project/venv/lib/python3.11/site-packages/optax/base.py"
    assert not Code(own=("/home/me/project",)).is_own(library)


def test_own_line_is_the_innermost_of_the_program() -> None:
    decode: Frame = ("/home/me/data.py", 71, "decode")
    stack = [(f"{PACKAGES}/PIL/Image.py", 900, "open"), decode, TRAIN, RUNPY]
    assert Code().own_line(stack) == decode


def test_no_own_line_in_a_stack_of_libraries() -> None:
    assert Code().own_line([RUNPY]) is None
    assert Code().places([[RUNPY]], of=1) == ()


def test_places_are_functions_with_their_busiest_line() -> None:
    stacks = [[("/home/me/data.py", line, "decode")] for line in (70, 71, 71, 72)]
    (place,) = Code().places([*stacks, [RUNPY]], of=8)
    assert (place.function, place.file, place.line) == ("decode", "/home/me/data.py", 71)
    assert place.share == 0.5


def test_functions_of_one_name_in_two_files_are_two_places() -> None:
    found = Code().places([[("/a.py", 1, "f")], [("/b.py", 1, "f")], [("/b.py", 1, "f")]], of=3)
    assert [place.file for place in found] == ["/b.py", "/a.py"]


def test_only_the_commonest_places_are_kept() -> None:
    stacks = [[(f"/{name}.py", 1, "f")] for name in "abbcccdddd"]
    assert [place.file for place in Code().places(stacks, of=10)] == ["/d.py", "/c.py", "/b.py"]
    assert len(Code().places(stacks, of=10, most=1)) == 1


FRAMES = st.tuples(
    st.sampled_from(["/home/me/train.py", JIT[0], f"{PACKAGES}/PIL/Image.py", "<string>", ""]),
    st.integers(0, 20),
    st.sampled_from(["main", "log", "Loader.__next__", "<module>", ""]),
)
STACKS = st.lists(FRAMES, max_size=5)


@given(st.lists(STACKS, max_size=4), STACKS)
def test_every_stack_has_an_activity(calls: list[list[Frame]], stack: list[Frame]) -> None:
    assert Code(calls=calls).activity(stack) in ("loading", "logging", "other")


LOADER = """
import time

def batches():
    while True:
        time.sleep(0.1)
        yield 1

def train():
    for batch in batches():
        yield update(batch)
"""


def test_where_the_step_is_many_operations_a_generator_that_calls_no_jax_is_a_loader(
    tmp_path: Path,
) -> None:
    file = str(tmp_path / "train.py")
    Path(file).write_text(LOADER)
    in_batches: Frame = (file, 6, "batches")
    in_train: Frame = (file, 11, "train")
    stacks = [[in_batches, in_train, RUNPY], [JIT, in_train, RUNPY], [in_train, RUNPY]]
    activities = [Code(seen=stacks).activity(stack) for stack in stacks]
    assert activities == ["loading", "other", "other"]
    assert [Code().activity(stack) for stack in stacks] == ["other"] * 3
