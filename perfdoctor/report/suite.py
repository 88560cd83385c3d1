"""JUnit's XML, by the library junitparser."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from perfdoctor.schema.errors import UsageError


def junitparser() -> Any:
    """The library; a UsageError that says how to get it."""
    try:
        return import_module("junitparser")
    except ModuleNotFoundError:
        raise UsageError("junitparser is missing; pip install 'perfdoctor[junit]'") from None


def suite(name: str, cases: Iterable[Any]) -> str:
    """One suite of test cases, as XML."""
    library = junitparser()
    tests, xml = library.TestSuite(name), library.JUnitXml()
    for case in cases:
        tests.add_testcase(case)
    xml.add_testsuite(tests)
    return str(xml.tostring().decode()) + "\n"
