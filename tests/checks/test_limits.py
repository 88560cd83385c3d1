"""Numbers that decide stand in one place, and are few."""

import ast
from itertools import pairwise
from pathlib import Path
from statistics import median

import perfdoctor_checks

FOLDER = Path(perfdoctor_checks.__path__[0])
LIMITS = FOLDER / "_limits.py"
OURS = "# ---- ours ----"
MOST_OF_OURS, LONGEST, USUAL = 25, 200, 90
WORDS = {"SHOWN", "LENGTH", "QUANTILE", "SCALES", "PACKED", "FIRST_DRIVER", "RARELY"}
"""Constants of a module that say how a thing is written or told, and decide nothing."""
PLAIN = (-1, 0, 1, 2)


def numbers(node: ast.AST) -> list[float]:
    """Literals other than the plainest."""
    return [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, int | float)
        and not isinstance(each.value, bool)
        and each.value not in PLAIN
    ]


def constants(tree: ast.Module) -> dict[str, int]:
    """Those of a module that are made of numbers, and the line of each."""
    return {
        name.id: node.lineno
        for node in tree.body
        if isinstance(node, ast.Assign) and numbers(node.value)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def test_no_check_compares_with_a_number_of_its_own() -> None:
    found = []
    for file in sorted(FOLDER.glob("*.py")):
        if file == LIMITS:
            continue
        tree = ast.parse(file.read_text())
        found += [f"{file.name}: {name}" for name in constants(tree) if name not in WORDS]
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                found += [f"{file.name}:{node.lineno}: {each}" for each in numbers(node)]
    assert not found


def test_no_check_is_long() -> None:
    lengths = {file.name: len(file.read_text().splitlines()) for file in FOLDER.glob("*.py")}
    assert {name: count for name, count in lengths.items() if count > LONGEST} == {}
    assert median(count for name, count in lengths.items() if not name.startswith("_")) <= USUAL


def test_ours_are_few_and_each_says_what_it_is() -> None:
    text = LIMITS.read_text()
    tree = ast.parse(text)
    begins = text[: text.index(OURS)].count("\n")
    ours = [name for name, line in constants(tree).items() if line > begins]
    assert 0 < len(ours) <= MOST_OF_OURS
    said = [first for first, then in pairwise(tree.body) if isinstance(then, ast.Expr)]
    assert len([node for node in said if node.lineno > begins]) == len(ours)
