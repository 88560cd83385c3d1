"""What one side writes, the other understands."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.protocol import answer, understood


@given(st.floats(0.0, 1e6), st.booleans())
def test_an_answer_is_understood(next_window_s: float, is_step_known: bool) -> None:
    text = answer(next_window_s, is_step_known=is_step_known)
    assert understood(text) == (next_window_s, is_step_known)


def test_it_brings_nothing_but_the_standard_library_into_the_program() -> None:
    code = """
import sys
before = set(sys.modules)
import perfdoctor.protocol
ours = {each for each in set(sys.modules) - before if each.partition(".")[0] == "perfdoctor"}
others = {each.partition(".")[0] for each in set(sys.modules) - before} - sys.stdlib_module_names
print(sorted(ours), sorted(others - {"perfdoctor"}))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['perfdoctor', 'perfdoctor.protocol'] []"
