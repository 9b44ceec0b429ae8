"""The page in a real Chromium: every task's answer as bars, attention, by keyboard, on a phone, in the dark."""

import json
import shutil

import pytest

import served

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver") or shutil.which("chromium.chromedriver")
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM or not DRIVER:
        pytest.skip("there is no Chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def client():
    with served.serving(served.Counting()) as client:
        yield client


@pytest.fixture
def page(browser, client):
    """The page, freshly opened"""
    show(browser)
    browser.get(str(client.base_url))
    wait(browser, "return document.querySelectorAll('#examples button').length > 0")
    wait(browser, "return document.querySelector('#tagline').textContent.includes('3 tasks')")
    return browser


def show(browser, width=1200, height=900, dark=False):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def wait(browser, script):
    served.until(lambda: browser.execute_script(script))


def press(browser, keys):
    webdriver.ActionChains(browser).send_keys(keys).perform()


def texts(browser, selector):
    return browser.execute_script(f"return [...document.querySelectorAll('{selector}')].map((node) => node.textContent)")


def answered(browser):
    wait(browser, "return !document.querySelector('#attention').hidden")


def example(browser, number):
    browser.execute_script(f"document.querySelectorAll('#examples button')[{number}].click()")
    answered(browser)


def test_pair_shows_every_task_s_answer_as_bars_and_its_attention(page):
    example(page, 2)
    assert texts(page, "#answer-cards h3") == ["same", "near"]
    assert texts(page, "#answer-cards .bar-head span") == ["0", "10.0%", "1", "90.0%", "score", "71.00"]
    widths = page.execute_script("return [...document.querySelectorAll('.fill')].map((node) => node.style.width)")
    assert widths == ["10%", "90%", "100%"]
    assert texts(page, "#attention-cards h3") == ["same", "near"]
    first, second = texts(page, "#attention-cards article:first-child .words")
    assert first.split() == ["How", "do", "I", "get", "ink", "out", "of", "a", "shirt?"]
    assert second.split() == ["What", "removes", "an", "ink", "stain", "from", "clothes?"]
    assert "2 tasks answered in" in page.find_element("id", "status").text


def test_everything_is_reached_and_asked_by_keyboard(page):
    reached = []
    for _ in range(9):
        press(page, webdriver.Keys.TAB)
        reached.append(page.execute_script("return document.activeElement.id || document.activeElement.textContent"))
        outline = page.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", f"{reached[-1]} shows no focus"
    assert reached[:5] == ["Skip to the answers", "HTTP routes", "first", "pair", "Ask all tasks"]
    page.execute_script("document.activeElement.blur(); document.querySelector('#first').focus()")
    press(page, "four")
    webdriver.ActionChains(page).key_down(webdriver.Keys.CONTROL).send_keys(webdriver.Keys.ENTER).key_up(
        webdriver.Keys.CONTROL
    ).perform()
    answered(page)
    assert texts(page, "#answer-cards .said") == ["so-so, 90.0%"]
    assert "mood: so-so, 90.0%" in page.execute_script("return document.querySelector('[aria-live]').textContent")


def test_every_input_has_a_label(page):
    unlabelled = "return [...document.querySelectorAll('input, textarea')].filter((node) => !node.labels.length).length"
    assert page.execute_script(unlabelled) == 0


def test_empty_text_is_asked_for_and_gets_the_focus(page):
    page.find_element("css selector", "button.primary").click()
    assert page.find_element("id", "status").text == "Type a text first."
    assert page.execute_script("return document.activeElement.id") == "first"


@pytest.mark.parametrize("path", ["", "/docs"])
def test_phone_of_360_pixels_needs_no_sideways_scrolling(browser, client, path):
    show(browser, 360, 740)
    browser.get(f"{client.base_url}{path}")
    wait(browser, "return document.querySelectorAll('#examples button, #routes article').length > 0")
    if not path:
        browser.execute_script("document.querySelector('#first').value = 'x'.repeat(300)")
        example(browser, 3)
        browser.execute_script("document.querySelector('#second').value = 'y'.repeat(300)")
        browser.find_element("css selector", "button.primary").click()
        wait(browser, "return document.querySelector('#attention-cards').textContent.includes('yyy')")
    assert browser.execute_script("return document.documentElement.scrollWidth") == 360


def test_dark_mode_is_dark_and_light_mode_light_with_readable_text(browser, client):
    for dark in (False, True):
        show(browser, dark=dark)
        browser.get(str(client.base_url))
        ground, ink = browser.execute_script(
            "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
        )
        assert (brightness(ground) < 0.2) == dark
        lighter, darker = sorted([brightness(ground), brightness(ink)], reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 7


def brightness(colour):
    """Relative luminance, as accessibility guidelines define it"""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_pages_ask_no_other_host_and_log_no_error(page, client):
    for kind in ("performance", "browser"):
        page.get_log(kind)  # what earlier pages left
    for path in ("", "/docs"):
        page.get(f"{client.base_url}{path}")
        wait(page, "return document.querySelectorAll('#examples button, #routes article').length > 0")
    example_page = str(client.base_url)
    page.get(example_page)
    wait(page, "return document.querySelector('#tagline').textContent.includes('3 tasks')")
    example(page, 0)
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert any(url.endswith("/v1/predict") for url in asked)
    assert {url for url in asked if not url.startswith(example_page)} == set()
    assert page.get_log("browser") == []


def test_key_is_asked_for_where_the_server_wants_one(browser):
    from pydantic import SecretStr

    from teabert.serving.settings import ServeSettings

    with served.serving(served.Counting(), ServeSettings(api_key=SecretStr("a key of ours"))) as client:
        show(browser)
        browser.get(str(client.base_url))
        wait(browser, "return !document.querySelector('#key-field').hidden")
        assert "wants a key" in browser.find_element("id", "status").text
        browser.find_element("id", "key").send_keys("a key of ours")
        browser.find_element("id", "first").send_keys("four")
        browser.find_element("css selector", "button.primary").click()
        answered(browser)
        assert texts(browser, "#answer-cards .said") == ["so-so, 90.0%"]
        browser.get_log("browser")  # Chromium itself logs the 401


def test_text_cannot_become_markup(page):
    page.find_element("id", "first").send_keys("<img src=x onerror=alert(1)> <b>bold</b>")
    page.find_element("css selector", "button.primary").click()
    answered(page)
    assert page.execute_script("return document.querySelectorAll('main img, main b').length") == 0
    assert "<b>bold</b>" in "".join(texts(page, "#attention-cards .words"))


def test_server_that_is_gone_is_named(browser):
    with served.serving(served.Counting()) as client:
        show(browser)
        browser.get(str(client.base_url))
        wait(browser, "return document.querySelector('#tagline').textContent.includes('3 tasks')")
    browser.find_element("id", "first").send_keys("four")
    browser.find_element("css selector", "button.primary").click()
    wait(browser, "return document.querySelector('#status').textContent.includes('does not answer')")
