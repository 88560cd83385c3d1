"""A real browser, for the tests of what people look at."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REQUIRED = "PERFDOCTOR_BROWSER"
"""Where this variable is `required`, as in .ci/run, a test without a browser fails."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium, as the system has it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        why = "no browser; apt-get install chromium"
        (pytest.fail if os.environ.get(REQUIRED) == "required" else pytest.skip)(why)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield running
        running.close()
