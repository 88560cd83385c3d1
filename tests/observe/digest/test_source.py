"""Which lines prepare what a step is called with."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdoctor.observe.digest.source import NOWHERE, Caller, caller, is_generator, sleeps

MARK = "#"
"""In the tests' sources: `# call`, the line asked for; `# calls`, of the same; `# feeds`."""


def marked(folder: Path, source: str) -> tuple[Caller, Caller]:
    """What is found for the line marked `# call`, and what the marks say."""
    text = textwrap.dedent(source).lstrip("\n")
    file = folder / "train.py"
    file.write_text(text)
    marks = {n: line.partition(MARK)[2].strip() for n, line in enumerate(text.splitlines(), 1)}
    (line,) = (n for n, mark in marks.items() if mark == "call")
    expected = Caller(
        calling=frozenset(n for n, mark in marks.items() if mark in ("call", "calls")),
        feeding=frozenset(n for n, mark in marks.items() if mark == "feeds"),
    )
    return caller(str(file), line), expected


SOURCES = {
    "a for head": """
        def train(state, data):
            for batch in data:  # feeds
                state = step(state, batch)  # call
                print(state)
        """,
    "assignments": """
        def train(state, data):
            for rows in data:  # feeds
                images = decode(rows)  # feeds
                batch = images / 255  # feeds
                state, loss = step(state, batch)  # call
                log(loss)
        """,
    "tuple targets": """
        for (images, labels), name in data:  # feeds
            [a, b], *rest = split(images)  # feeds
            state = step(state, a, labels)  # call
            print(name, rest)
        """,
    "attributes": """
        class Trainer:
            def run(self):
                while True:
                    self.batch = self.load()  # feeds
                    self.other = self.load()
                    self.state = self.step(self.state, self.batch)  # call
        """,
    "subscripts": """
        while True:
            batch = {}  # feeds
            batch["x"] = next(data)  # feeds
            state = step(state, batch)  # call
        """,
    "statements of several lines": """
        def train(state, data):
            for batch in zip(  # feeds
                data,  # feeds
                range(3),  # feeds
            ):  # feeds
                x = decode(  # feeds
                    batch  # feeds
                )  # feeds
                state = step(  # call
                    state,  # calls
                    x,  # calls
                )  # calls
        """,
    "nested functions": """
        def outer(data):
            batch = next(data)
            def inner(state):
                for _ in range(3):
                    batch = next(data)  # feeds
                    state = step(state, batch)  # call
                return state
            batch = next(data)
            return inner
        """,
    "a module": """
        data = load()
        for n in range(10):  # feeds
            batch = data[n]  # feeds
            state = step(state, batch)  # call
        """,
    "what is prepared once is no loading": """
        def train(state):
            batch = load()
            rate = schedule()
            for _ in range(10):
                state = step(state, batch, rate)  # call
        """,
    "a loop in a function further out": """
        def train_on(state, rows):
            batch = decode(rows)  # feeds
            return step(state, batch)  # call
        """,
    "what the step returns is no preparation": """
        def train(state):
            while True:
                x = state + 1  # feeds
                state = step(x)  # call
                loss = state.sum()
        """,
    "two calls of the step": """
        def train(state, data):
            for a, b in data:  # feeds
                state = step(state, a)  # call
                state = step(state, b)  # calls
        """,
    "a walrus": """
        while (batch := next(data)) is not None:  # feeds
            state = step(state, batch)  # call
        """,
    "a with statement": """
        while True:
            with open(file) as source:  # feeds
                batch = source.read()  # feeds
            state = step(state, batch)  # call
        """,
    "augmented and annotated assignments": """
        for rows in data:  # feeds
            batch: int = decode(rows)  # feeds
            batch += 1  # feeds
            state = step(state, batch)  # call
        """,
    "branches": """
        for rows in data:  # feeds
            if rows.any():
                batch = decode(rows)  # feeds
            else:
                batch = rows  # feeds
            try:
                state = step(state, batch)  # call
            except ValueError:
                pass
        """,
    "an asynchronous loop": """
        async def train(state, data):
            async for batch in data:  # feeds
                state = step(state, batch)  # call
        """,
    "a decorated function": """
        @wrap(
            1
        )
        def train(state, data):
            for batch in data:  # feeds
                state = step(state, batch)  # call
        """,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_lines_that_prepare_the_arguments_of_a_call(tmp_path: Path, source: str) -> None:
    found, expected = marked(tmp_path, source)
    assert found.feeding == expected.feeding
    assert found.calling == expected.calling


def test_a_file_that_is_not_there_says_nothing() -> None:
    assert caller("/nowhere/train.py", 3) == NOWHERE
    assert caller("<string>", 3) == NOWHERE


@pytest.mark.parametrize(
    "raw",
    [b"x ==", b"\0", b"x = (" * 1000, b"\xff\xfe", b"x = '\xff'", b"", b"-" * 100_000 + b"1"],
)
def test_a_file_that_is_no_python_says_nothing(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(raw)
    assert caller(str(file), 1).feeding == frozenset()


def test_a_statement_without_end_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = y" + ".f()" * 5000 + "\n")
    assert caller(str(file), 1).feeding == frozenset()


def test_a_line_that_is_not_in_the_file_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("for batch in data:\n    step(batch)\n")
    assert caller(str(file), 99) == NOWHERE


def test_a_directory_says_nothing(tmp_path: Path) -> None:
    assert caller(str(tmp_path), 1) == NOWHERE


WORDS = st.sampled_from(
    [
        "def f(x):",
        "\n    ",
        "\n",
        "for x in y:",
        "x = ",
        "x, y = ",
        "(",
        ")",
        "[",
        "]",
        "lambda: ",
        "step(x)",
        "with a as b:",
        "class C:",
        ":=",
        "await ",
        "async ",
        "yield ",
        "*",
        ".y",
        "if x:",
        "else:",
        "try:",
        "except:",
        "match x:",
        "case 1:",
        "return ",
        "@d",
        "'",
        "#",
    ]
)
TEXTS = st.text(max_size=60) | st.lists(WORDS, max_size=30).map("".join)


@settings(deadline=None)
@given(text=TEXTS, line=st.integers(-1, 10))
def test_whatever_the_text_it_says_something(
    tmp_path_factory: pytest.TempPathFactory, text: str, line: int
) -> None:
    file = tmp_path_factory.getbasetemp() / f"{abs(hash(text))}.py"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    found = caller(str(file), line)
    file.unlink()
    assert all(number >= 1 for number in found.calling | found.feeding)


@settings(deadline=None)
@given(st.lists(st.sampled_from(list(SOURCES)), min_size=1, max_size=3), st.integers(1, 40))
def test_whatever_the_line_calling_and_feeding_are_lines_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], line: int
) -> None:
    text = "\n".join(textwrap.dedent(SOURCES[name]) for name in names)
    file = tmp_path_factory.mktemp("source") / "train.py"
    file.write_text(text)
    found = caller(str(file), line)
    assert found.calling | found.feeding <= set(range(1, text.count("\n") + 2))


def test_a_generator_is_told_by_its_own_yield(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def outer():\n    def inner():\n        yield 1\n    return inner\n\n"
        "def batches():\n    for i in range(3):\n        x = yield from [i]\n"
    )
    assert not is_generator(str(file), 4)
    assert is_generator(str(file), 3)
    assert is_generator(str(file), 7)
    assert not is_generator(str(tmp_path / "none.py"), 1)


def test_a_line_sleeps_that_calls_something_of_that_name(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def train(state):\n"
        "    while not state.is_ready():\n"
        "        touch(); time.sleep(\n"
        "            0.02)\n"
        "    sleep(1)\n"
        "    sleepy(state)\n"
        "    if x: time.sleep(1)\n"
    )
    asleep = [line for line in range(1, 8) if sleeps(str(file), line)]
    assert asleep == [3, 4, 5, 7]
    assert not sleeps(str(tmp_path / "none.py"), 3)
