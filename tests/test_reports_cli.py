"""`teabert report` as a user meets it, and its page in a real Chromium: on a desk and on a phone, by day and by night."""

import json
import shutil
import sys

import pytest

import tiny
from teabert import cli, parse_recipe, train

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver") or shutil.which("chromium.chromedriver")
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    given = tiny.recipe(world, epochs=2, surgery="watch") | {"injection": "attention"}
    return train(parse_recipe(given), world / "run").path


@pytest.fixture
def call(monkeypatch, capsys):
    """teabert ARGUMENTS -> exit code, standard output, standard error"""

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["teabert", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return called


def test_page_is_written_into_the_run_folder(call, run):
    code, out, err = call("report", run)
    assert code == 0, err
    assert out.replace("\n", "") == f"Written: {run / 'report.html'}"
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_numbers_are_printed_as_strict_json(call, run, tmp_path):
    code, out, err = call("report", run, "--out", tmp_path / "page.html", "--json", "--quiet")
    assert (code, err) == (0, "")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(out, parse_constant=refuse)
    assert found["page"] == str(tmp_path / "page.html")
    _, out, _ = call("evaluate", run, "--json", "--quiet")
    wanted = json.loads(out)["tasks"]
    assert {task: {name: each["value"] for name, each in mine.items()} for task, mine in found["scores"].items()} == wanted
    assert sum(map(sum, found["confusion"]["mood"]["mood"]["counts"])) == 24


def test_mistakes_are_one_message_and_exit_code_2(call, run, tmp_path):
    for arguments, message in (
        ([tmp_path / "absent"], "There is no run folder"),
        ([run, "--out", run / "recipe.yaml"], "is there already and is no report"),
    ):
        code, out, err = call("report", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("teabert: ")
        assert message in err
    assert "teabert report" not in (run / "recipe.yaml").read_text()


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[dev]'")
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


def show(browser, page, width, dark):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true })")


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    from teabert.reports import report

    return report(run, tmp_path_factory.mktemp("page") / "page.html").path


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_every_screen_and_every_text_is_readable(browser, page, width, dark):
    show(browser, page, width, dark)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    worst = browser.execute_script(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (int(ground[4:].split(",")[0]) < 60) == dark
    smallest = (
        "return Math.min(...[...document.querySelectorAll('svg text')].map((each) => each.getBoundingClientRect().height))"
    )
    assert browser.execute_script(smallest) > 11


def test_page_asks_for_nothing_and_logs_nothing(browser, page):
    for kind in ("performance", "browser"):
        browser.get_log(kind)  # what earlier pages left
    show(browser, page, 1280, dark=False)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert set(asked) == {page.as_uri()}
    assert browser.get_log("browser") == []


CONTRAST = """
  const parts = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number)
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * (top[3] ?? 1) + below[n] * (1 - (top[3] ?? 1)))
  const ground = (node) => {
    if (!node) return [255, 255, 255]
    const colour = parts(getComputedStyle(node).backgroundColor)
    return (colour[3] ?? 1) === 0 ? ground(node.parentElement) : over(colour, ground(node.parentElement))
  }
  const light = (colour) => colour.map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0)
  let worst = {ratio: 99}
  for (const node of document.querySelectorAll('body *')) {
    const said = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())
    if (!said || ['TITLE', 'DESC'].includes(node.tagName.toUpperCase())) continue
    const style = getComputedStyle(node)
    const ink = light(parts(node.tagName === 'text' ? style.fill : style.color).slice(0, 3))
    const paper = light(ground(node))
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)
    if (ratio < worst.ratio) worst = {ratio, text: node.textContent.slice(0, 40), tag: node.tagName}
  }
  return worst
"""
