"""A browser, a suite with something on every page, and what a walk through it may not show."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as TooLate

from kourou_rigs.console_scene import ConsoleScene

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)
WIDE: Mapping[str, int] = {"width": 1360, "height": 900}
NARROW: Mapping[str, int] = {"width": 390, "height": 844}
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""Somebody on this machine made or removed a network interface; Chromium ends what is under way."""

PREVIEW = "Preview"
SOON_MS = 3_000
PATIENCE_MS = 20_000
"""Longer than anything takes; a page that hangs ends with it."""


class Walk:
    """One tab. Everything that a console without faults never does is kept in `faults`.

    `refusals` are the statuses that a test provokes on purpose.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = f"http://{address}/"
        self.faults: list[str] = []
        self.refusals: set[int] = set()
        self.interrupted = False
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def _said(self, message: Any) -> None:
        # A refused request is told twice; `_answered` knows which are meant.
        if message.type in ("error", "warning") and "Failed to load" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _failed(self, request: Any) -> None:
        if request.failure == NETWORK_CHANGED:
            self.interrupted = True
        elif request.failure != "net::ERR_ABORTED":  # leaving a page ends what it still asks for
            self.faults.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400 and response.status not in self.refusals:
            self.faults.append(f"{response.status}: {response.request.method} {response.url}")

    def to(self, path: str) -> Page:
        """Open the page at a path behind `#`, and wait until all its panels have answered."""
        self.open(path)
        return self.settled()

    def open(self, path: str) -> Page:
        """Open the page at a path behind `#`."""
        self.page.goto(f"{self.address}#{path}")
        while self.interrupted:
            self.interrupted = False
            self.page.reload()
        return self.page

    def settled(self) -> Page:
        """Wait until the page is there and nothing is being asked."""
        self.page.locator("main h1").wait_for()
        self.page.locator("main .loading").first.wait_for(state="detached")
        self.page.locator("main [aria-busy=true]").first.wait_for(state="detached")
        return self.page

    def panel(self, title: str) -> Locator:
        """The panel of this title."""
        return self.page.get_by_role("region", name=title, exact=True).first

    def dialog(self) -> Locator:
        """The dialog that is open."""
        return self.page.get_by_role("dialog").last

    def change(
        self, opener: str, fields: Mapping[str, object] = {}, *, verb: str, name: str = ""
    ) -> Sequence[str]:
        """Carry out a change by its dialog: fill in, look at what will happen, confirm by `verb`.

        What stands in the dialog before it is confirmed. `name` is typed in where it is asked for.
        """
        self.page.get_by_role("button", name=opener, exact=True).first.click()
        dialog = self.dialog()
        for label, value in fields.items():
            fill(dialog.get_by_label(label, exact=True), value)
        confirm = dialog.locator("footer button").last
        if fields and confirm.inner_text() == PREVIEW:
            confirm.click()
        expect(confirm).to_have_text(verb, timeout=PATIENCE_MS)
        says = dialog.locator(".notice").all_inner_texts()
        if name:
            expect(confirm).to_be_disabled()
            dialog.get_by_label(f"Type {name} to confirm").fill(name)
        confirm.click()
        return says

    def close(self) -> None:
        """Wait until the change is made; close the dialog, if it has more to say."""
        view = self.page.locator("dialog footer button:only-child")
        self.page.locator(
            "body:not(:has(dialog)), dialog footer button:only-child"
        ).first.wait_for()
        try:
            if view.count():
                view.click(timeout=SOON_MS)
        except TooLate:
            # A change that leads to another page takes its dialog away by itself.
            pass
        self.page.get_by_role("dialog").first.wait_for(state="detached")

    def violations(self) -> str:
        """What axe-core finds on the page as it is, one finding a line; empty if nothing."""
        results = Axe().run(self.page, options={"resultTypes": ["violations"]})
        return "\n".join(
            f"{found['id']} {found['help']}: {[node['html'][:160] for node in found['nodes']][:4]}"
            for found in results.response["violations"]
        )

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def fill(field: Locator, value: object) -> None:
    """Give a field its value, whatever kind it is."""
    if isinstance(value, bool):
        field.set_checked(value)
    elif field.evaluate("element => element.tagName") == "SELECT":
        field.select_option(str(value))
    else:
        field.fill(str(value))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=[*ARGUMENTS]
        )
        yield started
        started.close()


@pytest.fixture(scope="package")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleScene]:
    """A suite with something on every page."""
    with ConsoleScene(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest.fixture
def walking(browser: Browser) -> Iterator[Callable[..., Walk]]:
    """`walking(address, **options of a context)`: a tab; at the end it must be without fault."""
    walks: list[Walk] = []
    with ExitStack() as stack:

        def begin(address: str, **options: Any) -> Walk:
            context = browser.new_context(**{"viewport": WIDE, **options})
            stack.callback(context.close)
            walks.append(Walk(context.new_page(), address))
            return walks[-1]

        yield begin
    faults = [fault for walk in walks for fault in walk.faults]
    assert not faults, "\n".join(faults)


@pytest.fixture
def walk(walking: Callable[..., Walk], scene: ConsoleScene) -> Walk:
    """A tab at the console of the suite."""
    return walking(scene.console.address)


@pytest.fixture(scope="session")
def static() -> Path:
    """The folder of web pages."""
    root = Path(__file__).resolve().parents[2]
    return root / "services" / "console" / "kourou_console" / "static"
