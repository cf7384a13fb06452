"""The page in a real browser: nothing of an answer runs, search works by keyboard, fits a phone."""

import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from hashtune.report.runs import read_run
from hashtune.report.single import single_page
from hashtune.report.sources import Workspace

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("no browser: install chromium and chromium-driver, as .ci/run does")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as found:
        yield found


@pytest.fixture
def opened(browser, make_run, tmp_path):
    """The page of the hand-made run, opened from disk."""
    file = tmp_path / "report.html"
    file.write_text(single_page(read_run(Workspace(make_run()))), encoding="utf-8")
    browser.set_window_size(1000, 800)
    browser.get(file.as_uri())
    return browser


def visible(browser):
    articles = browser.find_elements(By.CSS_SELECTOR, "article")
    return [
        article.find_element(By.TAG_NAME, "h3").text
        for article in articles
        if article.is_displayed()
    ]


def test_a_hostile_answer_is_shown_and_does_not_run(opened):
    assert opened.title == "hashtune report: tiny (workspace)"
    assert (
        "<script>document.title='taken'</script>" in opened.find_element(By.TAG_NAME, "body").text
    )
    assert [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_markup_that_got_through_would_be_stopped(opened):
    """Planted: the same answer unescaped. The policy of the page refuses its script."""
    opened.execute_script(
        "const s = document.createElement('script'); s.textContent = \"document.title='taken'\";"
        "document.body.append(s);"
    )
    assert opened.title == "hashtune report: tiny (workspace)"
    assert any("Content Security Policy" in entry["message"] for entry in opened.get_log("browser"))


def test_answers_are_searched_by_keyboard(opened):
    assert visible(opened) == ["facts · s1 · lost", "task · t1 · won", "task · t2 · same"]
    search = opened.find_element(By.ID, "text")
    opened.execute_script("document.getElementById('text').focus()")
    opened.switch_to.active_element.send_keys("france")
    assert visible(opened) == ["facts · s1 · lost"]
    assert opened.find_element(By.ID, "count").text == "1 of 3 items"
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys(Keys.DELETE)
    search.send_keys(Keys.TAB)
    opened.switch_to.active_element.send_keys("won")  # the list of kinds takes the focus
    assert visible(opened) == ["task · t1 · won"]


def test_the_skip_link_comes_first(opened):
    opened.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert opened.switch_to.active_element.text == "To the verdict"


def test_it_fits_a_phone(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        width = opened.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_prints_without_the_search(opened):
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not opened.find_element(By.ID, "text").is_displayed()
        assert len(visible(opened)) == 3
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
