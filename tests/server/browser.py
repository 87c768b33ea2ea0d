"""A headless Chromium that tests drive: found on the machine, never downloaded, and offline but for the server under test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

DEADLINE_S = 120
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1100,800",
)


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser with its console kept. Without one installed the test is skipped."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driving = webdriver.Chrome(options, Service(driver))
    try:
        yield driving
    finally:
        driving.quit()


class Page:
    """The chat page in a browser, as a person has it before them."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url
        self.open()

    def open(self) -> None:
        self.driver.get(self.url + "/")

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def button(self, name: str) -> WebElement:
        return self.driver.find_element(By.XPATH, f"//button[normalize-space()='{name}']")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *arguments)

    def wait(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.driver, DEADLINE_S, 0.02).until(lambda _: condition())

    def wait_text(self, selector: str, text: str) -> None:
        """Until the last element has exactly this text."""
        self.wait(lambda: self.texts(selector)[-1:] == [text])

    def texts(self, selector: str) -> list[str]:
        return list(self.run("[...document.querySelectorAll(arguments[0])].map((each) => each.innerText)", selector))

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def chord(self, key: str) -> None:
        """A key with Alt."""
        webdriver.ActionChains(self.driver).key_down(Keys.ALT).send_keys(key).key_up(Keys.ALT).perform()

    def ask(self, text: str) -> None:
        self.find("#prompt").send_keys(text, Keys.ENTER)

    def set(self, **values: str) -> None:
        """Fill in settings, and close them."""
        self.find("#options").click()
        for name, value in values.items():
            field = self.find(f"[name={name}]")
            field.clear()
            field.send_keys(value)
        self.find("#done").click()
        self.wait(lambda: not self.run("document.getElementById('settings').open"))

    def emulate(self, **features: str) -> None:
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": listed})

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def leave(self) -> None:
        """Forget everything and close what is open, for the next test."""
        self.run("localStorage.clear()")
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.emulate()
        self.driver.get("about:blank")
