"""The chat page in a real browser, over real HTTP, with a model that says what the test gives it (issue 6.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from helios.errors import DeviceError
from tests.output.answers import EXAMPLES, with_tokens
from tests.server.browser import Page, chromium
from tests.server.conftest import RunningServer, wait_until
from tests.server.spoken import TOOL_OBJECTS, Speaking, speaking, template_of
from tests.tokenizer import vocabularies
from tests.tokenizer.conftest import tokenizer_of

ANSWER = "article[data-role=assistant]"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def visit(browser: webdriver.Chrome) -> Iterator[Callable[[RunningServer], Page]]:
    """Opens the page of a server; at the end the console must be empty."""
    pages: list[Page] = []

    def visit(server: RunningServer) -> Page:
        pages.append(Page(browser, server.url))
        return pages[-1]

    yield visit
    complaints = pages[-1].complaints()
    pages[-1].leave()
    assert complaints == []


@pytest.fixture
def page(server: RunningServer, visit: Callable[[RunningServer], Page]) -> Page:
    return visit(server)


def say(server: RunningServer, text: str, index: int = 0, *, is_end: bool = False) -> None:
    """The model goes on with its index-th answer."""
    generation = server.generation(index)
    for token_id in server.engine.tokenizer.encode(text, allow_special=False):
        generation.give(token_id)
    if is_end:
        generation.give(server.engine.eos_tokens[0])


def prompt_of(server: RunningServer, index: int) -> str:
    """What the model was given for its index-th answer."""
    return server.engine.tokenizer.decode(server.generation(index).request.prompt_tokens)


# -- talking


def test_a_message_is_sent_and_its_answer_grows(server: RunningServer, page: Page) -> None:
    server.engine.answer = None
    assert page.texts(".empty") == ["Enter sends, Shift+Enter breaks the line, Esc stops."]
    page.find("#prompt").send_keys("Two", Keys.SHIFT + Keys.ENTER + Keys.NULL, "lines", Keys.ENTER)
    assert page.texts("article[data-role=user] .text") == ["Two\nlines"]
    assert page.find("#prompt").get_attribute("value") == ""
    for piece, shown in (("Hel", "Hel"), ("lo wo", "Hello wo")):
        say(server, piece)
        page.wait_text(f"{ANSWER}.running .text", shown)
    assert page.find("#send").text == "Stop"
    say(server, "rld", is_end=True)
    page.wait(lambda: page.find("#send").text == "Send")
    assert page.texts(f"{ANSWER} .text") == ["Hello world"]
    (note,) = page.texts(f"{ANSWER} .foot span")
    assert note.startswith("9 tokens · ")
    assert "tokens/s · first after " in note
    assert note.endswith("(1 reused)")
    assert page.find("#announcer").get_attribute("textContent") == "Answer complete."
    assert prompt_of(server, 0) == "<|im_start|>user\nTwo\nlines<|im_end|>\n<|im_start|>assistant\n"


def test_a_conversation_goes_on_and_outlives_the_page(server: RunningServer, page: Page) -> None:
    for text in ("one", "two"):
        page.ask(text)
        page.wait(lambda: page.texts(f"{ANSWER} .foot button")[-2:] == ["Copy", "Again"])
    page.open()
    assert page.texts(f"{ANSWER} .text") == ["Hello world", "Hello world"]
    page.ask("three")
    assert "user\none<|im_end|>\n<|im_start|>assistant\nHello world<|im_end|>\n" in prompt_of(server, 2)
    page.wait_text(f"{ANSWER} .text", "Hello world")
    page.wait(lambda: page.find("#send").text == "Send")


@pytest.mark.parametrize("way", ["button", "escape"])
def test_an_answer_can_be_stopped(server: RunningServer, page: Page, way: str) -> None:
    server.engine.answer = None
    page.ask("hi")
    say(server, "Half")
    page.wait_text(f"{ANSWER} .text", "Half")
    if way == "button":
        page.button("Stop").click()
    else:
        page.press(Keys.ESCAPE)
    wait_until(lambda: server.generation().is_cancelled)
    page.wait(lambda: page.find("#send").text == "Send")
    assert page.texts(f"{ANSWER} .text") == ["Half"]
    assert page.texts(f"{ANSWER} .foot span")[0].startswith("stopped · ")
    assert page.find("#announcer").get_attribute("textContent") == "Stopped."
    assert page.texts(f"{ANSWER} .error") == [""]
    wait_until(lambda: server.engine.n_admitted == 0)


def test_a_question_can_be_changed_and_an_answer_had_again(server: RunningServer, page: Page) -> None:
    page.ask("first")
    page.wait(lambda: page.texts(f"{ANSWER} .foot button") == ["Copy", "Again"])
    page.button("Again").click()
    wait_until(lambda: len(server.engine.generations) == 2)
    page.wait(lambda: page.texts(f"{ANSWER} .foot button") == ["Copy", "Again"])
    assert prompt_of(server, 1) == prompt_of(server, 0)
    page.button("Edit").click()
    assert page.find_all("article") == []
    page.press(Keys.CONTROL + "a" + Keys.NULL, "second", Keys.ENTER)
    assert "second" in prompt_of(server, 2)
    assert "first" not in prompt_of(server, 2)
    page.wait(lambda: page.texts(f"{ANSWER} .text") == ["Hello world"])
    page.button("New").click()
    assert page.find_all("article") == []


# -- what goes wrong


def test_an_error_inside_the_stream_is_shown(server: RunningServer, page: Page) -> None:
    """HTTP-3: the error event; what had come stays, and the next question does not hold an empty answer."""
    server.engine.answer = None
    page.ask("hi")
    say(server, "Half")
    page.wait_text(f"{ANSWER} .text", "Half")
    server.generation().fail(DeviceError("the device is gone"))
    page.wait_text(f"{ANSWER} .error", "the device is gone")
    page.ask("again")
    assert "assistant\n<|im_end|>" not in prompt_of(server, 1)
    say(server, "Better", 1)
    page.wait_text(f"{ANSWER} .text", "Better")
    server.generation(1).fail(DeviceError("gone once more"))
    page.wait_text(f"{ANSWER} .error", "gone once more")
    assert page.texts(f"{ANSWER} .text") == ["Half", "Better"]


def test_a_refusal_is_shown_in_the_servers_words(server: RunningServer, page: Page) -> None:
    server.engine.capacity = 0
    page.ask("hi")
    page.wait_text(f"{ANSWER} .error", "0 requests are admitted, the limit is 0; retry later")
    (complaint,) = page.complaints()  # Chromium's own
    assert "429" in complaint


def test_a_server_that_goes_is_shown(server: RunningServer, page: Page) -> None:
    server.engine.answer = None
    page.ask("hi")
    say(server, "Half")
    page.wait_text(f"{ANSWER} .text", "Half")
    server.stop()
    page.wait(lambda: page.texts(f"{ANSWER} .error") != [""])
    page.wait(lambda: page.find("#state").text.endswith("no connection"))
    assert page.texts(f"{ANSWER} .text") == ["Half"]
    page.complaints()


# -- reasoning and tools


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Speaking]]:
    """A model with reasoning and calls, and what it says."""
    path = tmp_path_factory.mktemp("vocabulary") / "thinker.gguf"
    example = EXAMPLES[0]
    tokenizer = with_tokens(tokenizer_of(vocabularies.byte_level(path, user_defined=())), example.tokens)
    with speaking(tokenizer, example.frontend, template_of(example)) as server:
        yield example.answer, server


def test_reasoning_and_calls_are_shown_apart_and_results_given_back(
    thinker: tuple[str, Speaking], visit: Callable[[RunningServer], Page]
) -> None:
    answer, speaker = thinker
    page = visit(speaker.server)
    page.set(tools=json.dumps(TOOL_OBJECTS))
    page.run(
        "(window.sent = [], window.real = fetch, window.fetch = (url, how) => (sent.push(how?.body), real(url, how)))"
    )
    speaker.device.says(answer)
    page.ask("W?")
    page.wait(lambda: len(page.find_all(".call textarea")) == 2)
    assert page.texts(f"{ANSWER} .text") == ["Checking."]
    thought = "document.querySelector('.thinking')"
    assert page.run(f"[{thought}.open, {thought}.lastElementChild.textContent]") == [False, "Need it."]
    assert page.texts(".call summary") == ["Calls get_weather", "Calls noargs"]
    assert json.loads(page.texts(".call pre")[0])["days"] == 3

    speaker.device.says("It is sunny.")
    assert page.run("document.activeElement === document.querySelector('.call textarea')")
    page.press("sun", Keys.TAB, Keys.ENTER)  # the first, by keyboard alone
    page.wait(lambda: page.run("document.activeElement.getAttribute('aria-label')") == "Result of noargs")
    assert page.texts("article[data-role=tool] .text") == ["sun"]
    page.press("none", Keys.TAB, Keys.ENTER)
    page.wait_text(f"{ANSWER} .text", "It is sunny.")
    page.wait(lambda: page.find("#send").text == "Send")

    last = [json.loads(body) for body in page.run("window.sent") if body][-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "tool", "tool"]
    assert last[1]["reasoning_content"].strip() == "Need it."
    ids = [call["id"] for call in last[1]["tool_calls"]]
    assert [(message["tool_call_id"], message["content"]) for message in last[2:]] == [
        (ids[0], "sun"),
        (ids[1], "none"),
    ]


def test_a_call_that_was_cut_short_is_none(
    thinker: tuple[str, Speaking], visit: Callable[[RunningServer], Page]
) -> None:
    """Its arguments are no JSON, so it could not be sent back as history."""
    answer, speaker = thinker
    page = visit(speaker.server)
    opened = answer[: answer.index("city") + 12]
    n_tokens = len(speaker.tokenizer.encode(opened, allow_special=True))
    page.set(tools=json.dumps(TOOL_OBJECTS), max_tokens=str(n_tokens))
    speaker.device.says(answer)
    page.ask("W?")
    page.wait(lambda: "cut at the limit" in page.texts(f"{ANSWER} .foot span")[0])
    page.wait(lambda: page.find("#send").text == "Send")
    assert page.find_all(".call") == []
    page.set(max_tokens="")
    speaker.device.says("Fine.")
    page.ask("And now?")
    page.wait_text(f"{ANSWER} .text", "Fine.")
    page.wait(lambda: page.find("#send").text == "Send")


# -- markdown

HOSTILE = """<img src=x onerror="document.title='owned'"> <script>document.title='owned'</script>
[click](javascript:document.title='owned') [data](data:text/html,<script>1</script>) ![i](http://127.0.0.1:1/pixel.png)
[ok](https://example.org/?a=1&b=<b>) <a href="javascript:document.title='owned'">x</a> javascript:alert(1)
<style>body{display:none}</style> <iframe src="javascript:parent.document.title='owned'"></iframe>

```html"><img src=x onerror=document.title='owned'>
<img src=x onerror="document.title='owned'">
```
| <img src=x onerror=document.title='owned'> | b |
| --- | --- |
| `<svg onload=document.title='owned'>` | d |
"""


def test_no_answer_can_run_or_load_anything(server: RunningServer, page: Page) -> None:
    """Everything is text: no element but ours is made, and no link leads anywhere but to the web."""
    server.engine.answer = HOSTILE
    page.ask(HOSTILE)
    page.wait(lambda: page.find("#send").text == "Send" and page.find_all(f"{ANSWER} table"))
    assert page.driver.title == "Helios"
    assert (
        page.find_all("article img, article script, article style, article iframe, article svg, article object") == []
    )
    links = page.run(
        "[...document.querySelectorAll('article a')].map((each) => [each.protocol, each.rel, each.target])"
    )
    assert links
    assert {tuple(link) for link in links} <= {(kind, "noopener noreferrer", "_blank") for kind in ("http:", "https:")}
    attributes = page.run("[...document.querySelectorAll('article *')].flatMap((each) => each.getAttributeNames())")
    assert not {name for name in attributes if name.startswith(("on", "style", "src"))}
    assert "<img src=x onerror" in page.texts(f"{ANSWER} .text")[0]
    assert page.find("article[data-role=user] .text").text.startswith("<img src=x onerror")


def test_even_markup_that_got_in_would_not_run(server: RunningServer, page: Page) -> None:
    """The policy is the second wall: put past the first on purpose, a handler does nothing and nothing is loaded."""
    page.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE)
    page.wait(lambda: any("Content Security Policy" in complaint for complaint in page.complaints()))
    assert page.driver.title == "Helios"
    assert page.run("getComputedStyle(document.body).display") == "flex"
    page.complaints()


MARKDOWN = """# Title

Some **bold**, *slanted*, ~~struck~~ and `code <b>` text.
A second line with https://example.org/a_b_c.

- one
  1. inner
- two

> quoted

```python
x = 1 < 2
```

| a | b |
|---|---|
| 1 | `2` |

***
snake_case_name 2 * 3 * 4
"""


def test_markdown_is_shown_as_what_it_means(server: RunningServer, page: Page) -> None:
    server.engine.answer = MARKDOWN
    page.ask("show")
    page.wait(lambda: page.find("#send").text == "Send" and page.find_all(f"{ANSWER} hr"))
    shown = {
        "h3": ["Title"],
        "strong": ["bold"],
        "em": ["slanted"],
        "del": ["struck"],
        "p > code": ["code <b>"],
        "ul > li > ol > li": ["inner"],
        "blockquote": ["quoted"],
        "pre code": ["x = 1 < 2"],
        "th": ["a", "b"],
        "td": ["1", "2"],
        "a": ["https://example.org/a_b_c"],
        "hr + p": ["snake_case_name 2 * 3 * 4"],
    }
    assert {selector: page.texts(f"{ANSWER} .text {selector}") for selector in shown} == shown
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    page.find(f"{ANSWER} pre button").click()
    page.wait(lambda: page.find(f"{ANSWER} pre button").text == "Copied")


UNCLOSED = ["*a **b ", "`", "[", "> ", "- ", "_a ", "|-", "~~x ", "1. ", "[a](http://"]


def test_marks_that_nothing_closes_take_no_time(page: Page) -> None:
    """What looks for a closing mark is bounded: the first of these would take minutes otherwise."""
    page.driver.set_script_timeout(60)
    for mark in UNCLOSED:
        assert page.run("markdown(arguments[0]).length", mark * (2_800_000 // len(mark))) > 0


# -- settings


def test_settings_are_sent_and_kept(server: RunningServer, page: Page) -> None:
    page.set(
        system="Be brief",
        temperature="0.25",
        top_p="0.5",
        top_k="7",
        min_p="0.125",
        max_tokens="3",
        seed="42",
        stop="zz\nyy",
    )
    page.open()
    page.ask("hi")
    request = server.generation().request
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.25, 0.5, 7, 0.125)
    assert (sampling.seed, request.output_limit) == (42, 3)
    assert request.host_stop is not None
    assert prompt_of(server, 0).startswith("<|im_start|>system\nBe brief<|im_end|>\n")
    page.wait(lambda: "cut at the limit" in page.texts(f"{ANSWER} .foot span")[0])
    page.find("#options").click()
    assert page.find("[name=stop]").get_attribute("value") == "zz\nyy"
    page.button("Reset").click()
    page.find("#done").click()
    page.ask("hi")
    assert server.generation(1).request.sampling.temperature == 1
    page.wait(lambda: page.find("#send").text == "Send")


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("tools", "[", "Tools are not JSON"),
        ("tools", "{}", "Tools must be a JSON array."),
        ("stop", "a\nb\nc\nd\ne", "At most 4 stops are possible."),
    ],
)
def test_a_wrong_setting_is_told_and_not_taken(page: Page, field: str, value: str, problem: str) -> None:
    page.find("#options").click()
    page.find(f"[name={field}]").send_keys(value)
    page.find("#done").click()
    assert page.find("#settings-error").text.startswith(problem)
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.run("document.getElementById('settings').open"))
    assert page.run("localStorage.getItem('helios.settings')") is None


def test_a_key_is_asked_for_and_used(
    start_server: Callable[..., RunningServer], visit: Callable[[RunningServer], Page], tmp_path: Path
) -> None:
    """Issue 6.5: the page itself is public, what it does is not."""
    keys = tmp_path / "keys"
    keys.write_text("right-key")
    keys.chmod(0o600)
    server = start_server(api_key_file=str(keys))
    page = visit(server)
    page.wait_text("#model", "needs an API key: see Settings")
    page.set(key="wrong-key")
    page.ask("hi")
    page.wait(lambda: page.texts(f"{ANSWER} .error")[0].startswith("the API key is not one of this server's"))
    assert all("401" in complaint for complaint in page.complaints())
    page.set(key="right-key")
    page.wait_text("#model", "scripted-1b")
    page.ask("hi")
    page.wait_text(f"{ANSWER} .text", "Hello world")
    page.wait(lambda: page.find("#send").text == "Send")
    page.complaints()


# -- looks


def background(page: Page) -> str:
    return str(page.run("getComputedStyle(document.body).backgroundColor"))


def test_light_and_dark_follow_the_system_until_chosen(page: Page) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        page.emulate(prefers_color_scheme=scheme)
        seen[scheme] = background(page)
    assert seen["light"] != seen["dark"]
    button = page.find("#theme")
    button.click()
    assert (button.text, background(page)) == ("Light", seen["light"])
    button.click()
    page.emulate(prefers_color_scheme="light")
    page.open()
    assert (page.find("#theme").text, background(page)) == ("Dark", seen["dark"])
    page.find("#theme").click()
    assert (page.find("#theme").text, background(page)) == ("Auto", seen["light"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(page: Page, scheme: str) -> None:
    """WCAG 1.4.3: a contrast of 4.5 for each colour of text on what it stands on."""
    page.emulate(prefers_color_scheme=scheme)
    pairs = [("ink", "paper"), ("ink", "panel"), ("ink", "code"), ("quiet", "paper"), ("quiet", "panel"),
             ("accent", "paper"), ("on-accent", "accent"), ("bad", "paper")]  # fmt: skip
    names = {name for pair in pairs for name in pair}
    style = "getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0])"
    colours = {name: luminance(page.run(style, name)) for name in names}
    for text, ground in pairs:
        darker, lighter = sorted((colours[text], colours[ground]))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)


def luminance(colour: str) -> float:
    """Relative luminance of a hexadecimal colour (WCAG 2)."""
    digits = colour.strip().removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


WIDE = (
    "https://example.org/"
    + "x" * 300
    + "\n\n```\n"
    + "y" * 300
    + "\n```\n\n| "
    + " | ".join(["column"] * 30)
    + " |\n"
    + "|---" * 30
    + "|\n"
)


@pytest.mark.parametrize(("width", "height"), [(360, 740), (320, 568), (740, 360)])
def test_a_phone_shows_everything_without_scrolling_sideways(
    server: RunningServer, page: Page, width: int, height: int
) -> None:
    server.engine.answer = WIDE
    page.resize(width, height)
    page.ask("z" * 300)
    page.wait(lambda: page.find("#send").text == "Send" and page.find_all(f"{ANSWER} table"))
    sizes = page.run("[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth, innerWidth]")
    assert sizes == [width, width, width]
    for selector in ("#prompt", "#send", "#new", "#options", "#theme", "#live"):
        box = page.find(selector).rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
    page.find("#options").click()
    box = page.find("#settings").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    page.find("#done").click()


def test_everything_can_be_done_by_keyboard(server: RunningServer, page: Page) -> None:
    assert page.run("document.activeElement.id") == "prompt"
    page.press("hi", Keys.ENTER)
    page.wait(lambda: page.texts(f"{ANSWER} .foot button") == ["Copy", "Again"])
    page.chord("s")
    assert page.run("document.getElementById('settings').open")
    assert page.run("document.activeElement.name") == "system"
    page.press(Keys.TAB)
    page.press("0.5", Keys.ENTER)
    page.wait(lambda: not page.run("document.getElementById('settings').open"))
    page.run("document.activeElement.blur()")
    page.press("/")
    assert page.run("[document.activeElement.id, document.activeElement.value]") == ["prompt", ""]
    reached: list[list[str]] = []
    for _ in range(12):
        page.press(Keys.TAB)
        active = "document.activeElement"
        reached += [page.run(f"[{active}.id || {active}.textContent, getComputedStyle({active}).outlineStyle]")]
    assert {(name, "solid") for name in ("new", "options", "theme", "Again", "Edit")} <= set(map(tuple, reached))
    page.chord("n")
    assert page.find_all("article") == []
    page.press("again", Keys.ENTER)
    assert server.generation(1).request.sampling.temperature == 0.5
    page.wait(lambda: page.find("#send").text == "Send")


# -- bytes


def test_the_page_comes_with_its_policy(server: RunningServer) -> None:
    """One file, nothing from elsewhere, and not again when it is the same."""
    response = httpx.get(server.url + "/")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert all("unsafe" not in part for part in policy.values())
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert len(response.content) < 40_000
    assert "http://" not in response.text.replace("http://www.w3.org", "")
    again = httpx.get(server.url + "/", headers={"If-None-Match": response.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.head(server.url + "/").headers["Content-Length"] == str(len(response.content))
    assert httpx.get(server.url + "//").status_code == 404


def test_the_state_of_the_server_is_shown(server: RunningServer, page: Page) -> None:
    page.wait(lambda: page.find("#state").get_attribute("data-ready") == "yes")
    assert page.find("#model").text == "scripted-1b"
    server.engine.is_draining = True
    page.run("refreshState()")
    page.wait(lambda: page.find("#state").text.endswith("not ready"))
    complaints: list[Any] = page.complaints()
    assert all("503" in complaint for complaint in complaints)
