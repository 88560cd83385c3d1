"""The pages in a real browser."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from perfdoctor.report.benchmark import html as benchmark_html
from perfdoctor.report.html import report as html
from tests.report.benchmark.benchmarks import compared
from tests.report.html.pages import HOSTILE, SHOWN, complete, large

WIDTHS = {"desk": 1100, "phone": 380}
SERIOUS = ("serious", "critical")
PAGES: dict[str, Callable[[], str]] = {
    **{name: (lambda make=make: html.render(make())) for name, make in SHOWN.items()},  # type: ignore[misc]
    "benchmark": lambda: benchmark_html.render(compared()),
}


class Opened:
    """A page, and all that it complained of and asked for."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())


Open = Callable[..., Opened]


def until(page: Page, holds: Callable[[], object]) -> None:
    """Wait; the page's policy forbids what `wait_for_function` does in it."""
    for _ in range(500):
        if holds():
            return
        page.wait_for_timeout(20)
    raise AssertionError("it never came")


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(text: str, width: int = 1100, **more: Any) -> Opened:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **more))
        return Opened(contexts[-1].new_page(), file)

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_page_draws_all_its_plots_and_asks_for_nothing(
    name: str, scheme: str, width: int, open_page: Open
) -> None:
    text = PAGES[name]()
    opened = open_page(text, width, color_scheme=scheme)
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
    assert len(opened.requests) == 1
    drawn = opened.page.eval_on_selector_all(
        ".canvas",
        "all => all.map(e => e.querySelectorAll('rect, path, circle').length)",
    )
    assert len(drawn) == text.count('class="canvas"')
    assert all(drawn), drawn
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_no_serious_barrier(name: str, scheme: str, open_page: Open) -> None:
    opened = open_page(PAGES[name](), 1100, color_scheme=scheme)
    found = Axe().run(opened.page).response["violations"]
    assert [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] in SERIOUS] == []


def test_paper_is_light_and_has_no_buttons(open_page: Open) -> None:
    opened = open_page(PAGES["complete"](), color_scheme="dark")
    page = opened.page
    page.emulate_media(media="print")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert not any(button.is_visible() for button in page.query_selector_all("button"))
    assert all(svg.is_visible() for svg in page.query_selector_all(".canvas svg"))
    assert page.pdf().startswith(b"%PDF")
    assert opened.complaints == []


def test_a_fix_is_copied(open_page: Open) -> None:
    opened = open_page(PAGES["complete"](), permissions=["clipboard-read", "clipboard-write"])
    page, report = opened.page, complete()
    buttons = page.query_selector_all("[data-copies]")
    assert len(buttons) == len(report.findings) > 0
    for button, finding in zip(buttons, report.findings, strict=True):
        button.click()
        until(page, lambda: page.text_content("#said"))
        assert page.evaluate("navigator.clipboard.readText()") == finding.fix.how
        assert button.inner_text() == "Copied"


def domain(page: Page) -> list[float]:
    """The numbers at the ticks of the timeline."""
    texts = page.eval_on_selector_all(
        "[data-kind=timeline] [data-part='x-axis tick label'] text",
        "all => all.map(e => e.textContent)",
    )
    return [float(each.replace("−", "-").replace(",", "")) for each in texts]


def test_the_timeline_zooms_moves_and_comes_back(open_page: Open) -> None:
    page = open_page(PAGES["complete"]()).page
    whole = domain(page)

    def press(name: str) -> list[float]:
        before = page.inner_html("[data-kind=timeline]")
        page.get_by_role("button", name=name, exact=True).click()
        until(page, lambda: page.inner_html("[data-kind=timeline]") != before)
        return domain(page)

    near = press("Zoom in")
    assert max(near) - min(near) < 0.8 * (max(whole) - min(whole))
    later = press("Later")
    assert max(later) > max(near)
    assert press("Whole") == whole


def test_the_timeline_zooms_by_wheel_with_control_only(open_page: Open) -> None:
    page = open_page(PAGES["complete"]()).page
    page.locator("[data-kind=timeline]").scroll_into_view_if_needed()
    page.locator("[data-kind=timeline]").hover()
    whole = domain(page)
    page.mouse.wheel(0, -20)
    assert domain(page) == whole
    page.locator("[data-kind=timeline]").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    until(page, lambda: domain(page) != whole)


def test_a_narrower_window_is_drawn_anew(open_page: Open) -> None:
    page = open_page(PAGES["complete"]()).page
    # Drawn anew, the figure is for a moment not there.
    narrow = "[...document.querySelectorAll('.canvas svg')].some((each) => each.clientWidth < 400)"
    assert not page.evaluate(narrow)
    page.set_viewport_size({"width": 420, "height": 800})
    until(page, lambda: page.evaluate(narrow))


def test_hostile_text_does_nothing(open_page: Open) -> None:
    page = open_page(PAGES["hostile"]()).page
    assert page.evaluate("window.harmed") is None
    assert page.query_selector_all("img, svg[onload], b") == []
    summary = page.inner_text(".finding p")
    assert "<script>window.harmed = 1</script>" in summary
    assert "{{ 7 * 191 }}" in summary
    assert "\\u202e" in summary and "\u202e" not in page.content()
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", page.content())
    assert page.evaluate("document.querySelectorAll('script').length") == 3


def test_a_copied_hostile_fix_is_what_is_seen(open_page: Open) -> None:
    page = open_page(PAGES["hostile"](), permissions=["clipboard-read", "clipboard-write"]).page
    page.click("[data-copies]")
    until(page, lambda: page.text_content("#said"))
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("#fix-1")
    assert HOSTILE not in page.inner_text("#fix-1")


def test_a_page_that_is_told_to_ask_the_network_is_refused(open_page: Open) -> None:
    opened = open_page(PAGES["healthy"]())
    with pytest.raises(Exception, match="Failed to fetch"):
        opened.page.evaluate("fetch('http://127.0.0.1:1/')")
    assert any("Content Security Policy" in each for each in opened.complaints)


def test_very_much_is_drawn_too(open_page: Open) -> None:
    opened = open_page(html.render(large(1000, 20_000)))
    assert opened.complaints == []
    assert opened.page.locator("[data-kind=timeline] svg rect").count() > 100
    figures = opened.page.evaluate("JSON.parse(document.getElementById('figures').textContent)")
    assert any(mark["text"] == "outlier: long" for mark in figures[0]["marks"])


def test_the_table_below_a_plot_can_be_opened(open_page: Open) -> None:
    page = open_page(PAGES["complete"]()).page
    page.click("figure.plot summary >> nth=0")
    assert page.locator("figure.plot table").first.is_visible()


def test_without_scripts_the_numbers_are_there(open_page: Open) -> None:
    page = open_page(PAGES["complete"](), java_script_enabled=False).page
    assert page.locator("noscript").count() == 1
    assert page.locator("figure.plot table").count() == page.locator("figure.plot").count()


def test_the_same_report_makes_the_same_page() -> None:
    assert PAGES["hostile"]() == PAGES["hostile"]()
