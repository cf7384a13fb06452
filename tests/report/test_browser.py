"""The page in a real browser: nothing of an answer runs, search works by keyboard, fits a phone."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from hashtune.report.comparison import comparison_page
from hashtune.report.runs import read_run
from hashtune.report.single import single_page
from hashtune.report.sources import Workspace

HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
TITLE = "hashtune report: tiny (workspace)"
SHOWN = """return [...document.querySelectorAll('article')].filter(a => a.checkVisibility())
  .map(a => a.querySelector('h3').textContent)"""

LINEAGE = "return document.querySelector('details table').checkVisibility()"


def _webdriver():
    spec = importlib.util.spec_from_file_location(
        "webdriver", Path(__file__).parent / "webdriver.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


webdriver = _webdriver()
KEYS = webdriver.KEYS


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        absent = "no network service" if "NO_PACKAGE_INDEX" in os.environ else "no browser"
        pytest.skip(f"{absent}: install chromium and chromium-driver, as .ci/run does")
    with webdriver.browser(driver, chromium, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def opened(browser, make_run, tmp_path):
    """The page of the hand-made run, opened from disk."""
    file = tmp_path / "report.html"
    file.write_text(single_page(read_run(Workspace(make_run()))), encoding="utf-8")
    browser.open(file.as_uri())
    return browser


def test_a_hostile_answer_is_shown_and_does_not_run(opened):
    assert opened.run("return document.title") == TITLE
    text = opened.run("return document.body.innerText")
    assert "<script>document.title='taken'</script>" in text
    assert [entry for entry in opened.log() if entry["level"] == "SEVERE"] == []


def test_markup_that_got_through_would_be_stopped(opened):
    """Planted: the same answer unescaped. The policy of the page refuses its script."""
    opened.run(
        "const s = document.createElement('script'); s.textContent = \"document.title='taken'\";"
        "document.body.append(s);"
    )
    assert opened.run("return document.title") == TITLE
    assert any("Content Security Policy" in entry["message"] for entry in opened.log())


def test_answers_are_searched_by_keyboard(opened):
    assert opened.run(SHOWN) == ["facts · s1 · lost", "task · t1 · won", "task · t2 · same"]
    opened.run("document.getElementById('text').focus()")
    opened.type("france")
    assert opened.run(SHOWN) == ["facts · s1 · lost"]
    assert opened.run("return document.getElementById('count').textContent") == "1 of 3 items"
    opened.type(KEYS["control"] + "a" + KEYS["release"] + KEYS["delete"] + KEYS["tab"])
    opened.type("won")  # the list of kinds took the focus
    assert opened.run(SHOWN) == ["task · t1 · won"]


def test_the_skip_link_comes_first(opened):
    opened.type(KEYS["tab"])
    assert opened.run("return document.activeElement.textContent") == "To the verdict"


PHONE = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
WIDTH = "return document.documentElement.scrollWidth"


def test_it_fits_a_phone(opened):
    opened.devtools("Emulation.setDeviceMetricsOverride", **PHONE)
    try:
        assert opened.run(WIDTH) <= 390
    finally:
        opened.devtools("Emulation.clearDeviceMetricsOverride")


def test_several_runs_fit_it_and_hostile_names_are_text(browser, make_run, tmp_path):
    labels = ("main", f"exp-{HOSTILE}")
    runs = [
        read_run(Workspace(make_run(f"run{place}", lr=0.1 * (1 + place)), label=label))
        for place, label in enumerate(labels)
    ]
    file = tmp_path / "several.html"
    file.write_text(comparison_page(runs), encoding="utf-8")
    browser.devtools("Emulation.setDeviceMetricsOverride", **PHONE)
    try:
        browser.open(file.as_uri())
        assert browser.run("return document.title") == "hashtune report: 2 runs"
        assert HOSTILE in browser.run(
            "return document.querySelector('td + td, td').parentElement.parentElement.textContent"
        )
        assert browser.run(WIDTH) <= 390
        assert [entry for entry in browser.log() if entry["level"] == "SEVERE"] == []
    finally:
        browser.devtools("Emulation.clearDeviceMetricsOverride")


def test_it_prints_without_the_search(opened):
    assert not opened.run(LINEAGE)
    opened.devtools("Emulation.setEmulatedMedia", media="print")
    try:
        assert not opened.run("return document.getElementById('text').checkVisibility()")
        assert len(opened.run(SHOWN)) == 3
        assert opened.run(LINEAGE)  # closed on the screen; paper cannot be clicked
    finally:
        opened.devtools("Emulation.setEmulatedMedia", media="")
