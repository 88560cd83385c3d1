from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.workload import Data, Inference, Model, Process, Training, Workload
from perfdoctor.targets.workload import REFERENCE, convert, launch, read


def write(folder: Path, text: str | bytes) -> Path:
    file = folder / "w.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def refusal(file: Path) -> str:
    """The message with which the file is refused: one line that begins with the file's name."""
    with pytest.raises(UsageError) as caught:
        read(file)
    message = str(caught.value)
    assert message.splitlines() == [message]
    assert message.startswith(f"{file}: ")
    return message


def test_a_whole_file(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        expect = ["gc", "dtype"]
        [model]
        name = "mlp"
        dropout = 0
        kernel = 5
        scan = false
        [data]
        folder = "here"
        [training]
        batch_size = 8
        donate = false
        schedule = "static"
        schedule_every = 2
        callback = "metric"
        keep_every = 10
        [process]
        env.XLA_FLAGS = "--xla_x"
        [inference]
        clients = 4
        batched = true
        """,
    )
    assert read(file) == Workload(
        model=Model(name="mlp", dropout=0.0, kernel=5, scan=False),
        data=Data(folder="here"),
        training=Training(
            batch_size=8,
            donate=False,
            schedule="static",
            schedule_every=2,
            callback="metric",
            keep_every=10,
        ),
        process=Process(env={"XLA_FLAGS": "--xla_x"}),
        inference=Inference(clients=4, batched=True),
        expect=("gc", "dtype"),
    )


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    assert read(write(tmp_path, "")) == Workload()


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[training]\nbatchsize = 3", "training.batchsize", "did you mean batch_size?"),
        ("[trainig]\nsteps = 3", "trainig", "did you mean training?"),
        ("[data]\nprefetching = 3", "data.prefetching", "did you mean prefetch?"),
        ("[inference]\nclient = 3", "inference.client", "did you mean clients?"),
        ("[training]\nshedule = 3", "training.shedule", "did you mean schedule?"),
        ("[process]\ngc_frezze = true", "process.gc_frezze", "did you mean gc_freeze?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(
    tmp_path: Path, text: str, key: str, nearest: str
) -> None:
    message = refusal(write(tmp_path, text))
    assert f"unknown key {key}" in message
    assert nearest in message


def test_an_unknown_key_that_resembles_none_is_answered_with_all(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "[model]\nzzzzzz = 1"))
    assert "unknown key model.zzzzzz" in message
    assert "name, width, depth, dropout" in message


@pytest.mark.parametrize(
    ("text", "shown", "expected"),
    [
        ('[training]\nbatch_size = "big"', 'training.batch_size = "big"', "int"),
        ("[training]\nbatch_size = 64.5", "training.batch_size = 64.5", "int"),
        ("[training]\nbatch_size = true", "training.batch_size = true", "int"),
        ("[training]\njit = 1", "training.jit = 1", "bool"),
        ("[data]\nfolder = 3", "data.folder = 3", "str"),
        ("[model]\ndropout = []", "model.dropout = []", "float"),
        ("[training]\nsteps = 2026-01-01", "training.steps = 2026-01-01", "int"),
        ("[inference]\nbatched = 1", "inference.batched = 1", "bool"),
        ("[training]\nstate_on_host = 1", "training.state_on_host = 1", "bool"),
        ("[model]\nkernel = 1.5", "model.kernel = 1.5", "int"),
        ("inference = 3", "inference = 3", "a table"),
        ("model = 3", "model = 3", "a table"),
        ('expect = "gc"', 'expect = "gc"', "a list"),
    ],
)
def test_a_wrong_type_is_named_with_the_right_one(
    tmp_path: Path, text: str, shown: str, expected: str
) -> None:
    message = refusal(write(tmp_path, text))
    assert shown in message
    assert f"expected {expected}" in message


@pytest.mark.parametrize("text", ["[process.env]\nA = 1", "expect = [1]"])
def test_a_wrong_type_inside_a_collection_names_the_collection(tmp_path: Path, text: str) -> None:
    message = refusal(write(tmp_path, text))
    assert "process.env" in message or "expect" in message
    assert "expected str" in message


@pytest.mark.parametrize(
    ("value", "bound"), [("0", ">= 1"), ("-64", ">= 1"), ("1000000000", "<= 65536")]
)
def test_a_batch_out_of_bounds_is_answered_with_the_bound(
    tmp_path: Path, value: str, bound: str
) -> None:
    message = refusal(write(tmp_path, f"[training]\nbatch_size = {value}"))
    assert f"training.batch_size = {value}" in message
    assert bound in message


@pytest.mark.parametrize(
    ("table", "field", "value", "bound"),
    [
        ("model", "kernel", 0, ">= 1"),
        ("model", "kernel", 65, "<= 64"),
        ("training", "devices", 0, ">= 1"),
        ("training", "schedule_every", 0, ">= 1"),
        ("training", "keep_every", -1, ">= 0"),
        ("inference", "clients", -1, ">= 0"),
        ("inference", "clients", 257, "<= 256"),
    ],
)
def test_a_number_out_of_bounds_is_answered_with_the_bound(
    tmp_path: Path, table: str, field: str, value: int, bound: str
) -> None:
    message = refusal(write(tmp_path, f"[{table}]\n{field} = {value}"))
    assert f"{table}.{field} = {value}" in message
    assert bound in message


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0.0", "10.5"])
def test_a_learning_rate_that_cannot_train_is_refused(tmp_path: Path, value: str) -> None:
    message = refusal(write(tmp_path, f"[training]\nlearning_rate = {value}"))
    assert f"training.learning_rate = {value}" in message


@pytest.mark.parametrize(
    ("text", "key", "choices"),
    [
        ('[model]\nname = "resnet"', "model.name", ("mlp", "cnn", "lstm", "transformer")),
        ('[data]\nsource = "disk"', "data.source", ("images", "records", "memory")),
        ('[training]\nschedule = "cosine"', "training.schedule", ("constant", "traced", "static")),
        ('[training]\ncallback = "log"', "training.callback", ("none", "print", "metric")),
        ('[training]\ndtype = "f16"', "training.dtype", ("bfloat16", "mixed", "float64")),
    ],
)
def test_a_bad_choice_is_answered_with_the_choices(
    tmp_path: Path, text: str, key: str, choices: tuple[str, ...]
) -> None:
    message = refusal(write(tmp_path, text))
    assert f"{key} = " in message
    assert all(choice in message for choice in choices)


@pytest.mark.parametrize(
    "text",
    [
        "[training",
        "batch size = 3",
        "[training]\nsteps = 1\nsteps = 2",
        "a = ",
        "\0",
        "\ufeffexpect = []",
        "a = 2026-13-45",
        '{"training": {}}',
    ],
)
def test_what_is_not_toml_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    assert "not TOML" in refusal(write(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000, "a = " + "9" * 5000, "[training]\nsteps = 0x" + "f" * 5000],
    ids=["nested too deep", "too many digits", "too many hexadecimal digits"],
)
def test_values_beyond_what_python_reads_are_refused(tmp_path: Path, text: str) -> None:
    refusal(write(tmp_path, text))


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"a = '\xe9'", bytes(range(256))])
def test_what_is_not_utf_8_is_refused(tmp_path: Path, raw: bytes) -> None:
    assert "UTF-8" in refusal(write(tmp_path, raw))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.toml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert "directory" in refusal(tmp_path / "folder.toml")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('[model]\nname = "lstm"\n[data]\nsource = "images"', ("model.name", "data.source")),
        ('[model]\nname = "transformer"\n[data]\nsource = "images"', ("model.name", "data.source")),
        ("[model]\ndepth = 6\n[data]\nimage_size = 32", ("model.depth", "data.image_size")),
        ("[data]\nexamples = 100000\nimage_size = 512", ("data.examples",)),
        (
            "[training]\nbatch_size = 7\ndevices = 2",
            ("training.batch_size = 7", "training.devices = 2", "a multiple"),
        ),
        ("[training]\nbatch_size = 1\ndevices = 2", ("training.batch_size", "training.devices")),
        (
            '[training]\ndevices = 2\nschedule = "traced"',
            ("training.devices = 2", 'schedule = "constant"'),
        ),
        (
            "[training]\ndevices = 2\nstate_on_host = true",
            ("training.devices = 2", "state_on_host = false"),
        ),
    ],
)
def test_impossible_combinations_name_their_keys(
    tmp_path: Path, text: str, keys: tuple[str, ...]
) -> None:
    message = refusal(write(tmp_path, text))
    assert all(key in message for key in keys)
    assert "expected" in message


@pytest.mark.parametrize(
    "text",
    [
        "[model]\ndepth = 5\n[data]\nimage_size = 32",
        '[model]\nname = "mlp"\ndepth = 6\n[data]\nimage_size = 32',
        '[model]\nname = "lstm"\n[data]\nexamples = 100000\nimage_size = 512',
        "[training]\nbatch_size = 8\ndevices = 2",
        "[training]\nbatch_size = 7\ndevices = 7",
        '[training]\nschedule = "static"\nstate_on_host = true',
    ],
)
def test_combinations_that_only_look_impossible(tmp_path: Path, text: str) -> None:
    assert isinstance(read(write(tmp_path, text)), Workload)


@pytest.mark.parametrize(
    "text",
    [
        '"two\\nlines" = 1',
        '[model]\nname = "two\\nlines"',
        '[training]\nsteps = "two\\rlines"',
        '[data]\nimage_size = {"two\\nlines" = 1}',
    ],
)
def test_line_breaks_in_a_file_do_not_break_the_message(tmp_path: Path, text: str) -> None:
    refusal(write(tmp_path, text))


@pytest.mark.parametrize("value", ["x - at `$.data", "x, got `y", "` - at `$"])
def test_a_value_may_look_like_the_message_about_it(tmp_path: Path, value: str) -> None:
    message = refusal(write(tmp_path, f"[model]\nname = '{value}'"))
    assert f'model.name = "{value}"' in message
    assert "transformer" in message


@pytest.mark.parametrize(
    "text",
    [
        '[process.env]\n"A=B" = "1"',
        '[process.env]\nA = "\\u0000"',
        '[process.env]\n"A\\u0000" = "1"',
    ],
)
def test_an_environment_that_no_process_can_have_is_refused(tmp_path: Path, text: str) -> None:
    assert "process.env" in refusal(write(tmp_path, text))


def test_a_folder_that_no_system_can_have_is_refused(tmp_path: Path) -> None:
    assert "data.folder" in refusal(write(tmp_path, '[data]\nfolder = "\\u0000"'))


def test_a_launch_hands_the_workload_to_the_reference_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOCTOR_TEST", "kept")
    monkeypatch.setenv("XLA_FLAGS", "replaced")
    workload = Workload(process=Process(env={"XLA_FLAGS": "--xla_x"}))
    spec = tmp_path / "workload.json"
    start = launch(workload, spec, tmp_path / "data", "--option")
    data = str(tmp_path / "data")
    assert start.command == ("-m", REFERENCE, str(spec), data, "--option")
    assert (start.env["PERFDOCTOR_TEST"], start.env["XLA_FLAGS"]) == ("kept", "--xla_x")
    assert msgspec.json.decode(spec.read_bytes(), type=Workload) == workload


TABLES = ("model", "data", "training", "process", "inference")
NAMES = [
    each.name
    for kind in (Model, Data, Training, Process, Inference)
    for each in msgspec.structs.fields(kind)
]
WORDS = st.sampled_from([*TABLES, *NAMES, "expect", "zzz"]) | st.text(max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.sampled_from(["cnn", "lstm", "images", "memory", "mixed", 8, 0.5])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def table(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Mostly with keys that it knows, of any type."""
    known = st.sampled_from([each.name for each in msgspec.structs.fields(kind)])
    return st.dictionaries(known, VALUES, max_size=2)


FILES = st.dictionaries(WORDS, VALUES, max_size=4) | st.fixed_dictionaries(
    {},
    optional={
        "model": table(Model),
        "data": table(Data),
        "training": table(Training),
        "process": table(Process),
        "inference": table(Inference),
        "expect": st.lists(st.text(max_size=4) | SCALARS, max_size=2),
    },
)


@settings(deadline=None)
@given(FILES)
def test_anything_is_a_workload_or_refused_in_one_line(raw: dict[str, Any]) -> None:
    try:
        workload = convert(raw, "w.toml")
    except UsageError as error:
        message = str(error)
        assert message.splitlines() == [message]
        assert message.startswith("w.toml: ")
    else:
        assert msgspec.convert(msgspec.to_builtins(workload), Workload) == workload
