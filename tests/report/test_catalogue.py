import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.report.catalogue import explanation, shown, table
from perfdoctor.schema.fix import Scalar
from perfdoctor.schema.report import Evidence

ROWS = [
    ("etl", "the device waits for data", ("steps",), "yes"),
    ("competing-processes", "other programs take the cores", ("load", "host"), "no: nothing ran"),
    ("avx", "a CPU without vector sets", (), "yes"),
]
NO_FACTS: list[Evidence] = []


def fact(name: str, value: Scalar | None, unit: str = "") -> Evidence:
    return Evidence(name=name, value=value, unit=unit, source="/proc/cpuinfo")


def test_one_check_a_row_under_a_heading() -> None:
    heading, *lines = table(ROWS, width=120).splitlines()
    assert heading.split() == ["check", "finds", "needs", "here"]
    assert [line.split()[0] for line in lines] == ["etl", "competing-processes", "avx"]


def test_what_a_check_needs_is_listed() -> None:
    lines = table(ROWS, width=120).splitlines()
    assert "load, host" in lines[2]
    assert lines[3].split()[-2:] == ["-", "yes"]


def test_the_columns_stand_below_their_headings() -> None:
    lines = table(ROWS, width=120).splitlines()
    begin = lines[0].index("here")
    assert [line[begin:] for line in lines[1:]] == ["yes", "no: nothing ran", "yes"]
    assert all(line[begin - 1] == " " for line in lines)


def test_a_narrow_table_wraps_and_loses_no_word() -> None:
    text = table(ROWS, width=60)
    assert len(text.splitlines()) > 4
    assert max(map(len, text.splitlines())) <= 60
    assert {"other", "programs", "take", "the", "cores", "nothing", "ran"} <= set(text.split())


def test_names_are_never_wrapped() -> None:
    assert any(line.startswith("competing-processes ") for line in table(ROWS, 60).splitlines())


def test_no_checks_leave_the_heading() -> None:
    assert table([], width=80).split() == ["check", "finds", "needs", "here"]


WORDS = st.text(st.sampled_from("ab [](){}:/-."), max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS, st.lists(WORDS, max_size=2), WORDS), max_size=4))
def test_no_line_ends_in_blanks(rows: list[tuple[str, str, list[str], str]]) -> None:
    text = table(rows, width=100)
    assert text.endswith("\n")
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text


@given(st.text(st.sampled_from("ab[]/="), min_size=1, max_size=10))
def test_brackets_are_no_markup(title: str) -> None:
    assert title in table([("etl", title, (), "yes")], width=100)


def test_an_explanation_is_the_documentation() -> None:
    assert explanation("etl", "\n  Data loading.\n\nWhy it is slow.\n\n", NO_FACTS) == (
        "etl: Data loading.\n\nWhy it is slow.\n"
    )


def test_what_the_machine_has_follows_in_columns() -> None:
    facts = [fact("cores", 2.5), fact("vector sets", "avx2, fma"), fact("memory", 16, "GiB")]
    before, _, after = explanation("avx", "Vector sets.", facts).partition("\nOn this machine\n")
    assert before == "avx: Vector sets.\n"
    assert after.splitlines()[1:] == [
        "cores        2.5  (/proc/cpuinfo)",
        "vector sets  avx2, fma  (/proc/cpuinfo)",
        "memory       16 GiB  (/proc/cpuinfo)",
    ]


def test_the_rule_is_as_long_as_its_heading() -> None:
    lines = explanation("avx", "Vector sets.", [fact("cores", 2)]).splitlines()
    heading = lines.index("On this machine")
    assert lines[heading + 1] == "-" * len("On this machine")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", "none"),
        ("", "", "none"),
        (0, "", "0"),
        (0.0, "ms", "0 ms"),
        (False, "", "False"),
        (True, "", "True"),
        (2.0, "cores", "2 cores"),
        (0.123456789, "", "0.123457"),
        (1234567, "bytes", "1234567 bytes"),
        ("avx2", "", "avx2"),
    ],
)
def test_a_value_with_its_unit(value: Scalar | None, unit: str, text: str) -> None:
    assert shown(fact("x", value, unit)) == text
