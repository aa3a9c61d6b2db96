"""Creates the console's screenshots for the pages of this folder.

    .venv/bin/python docs/pictures/make.py

It requires Chromium. The pictures differ from run to run, because rates and times do.

State: the two files next to it.
"""

from __future__ import annotations

import itertools
import logging
import math
import shutil
import sys
import tempfile
from pathlib import Path
from threading import Event
from typing import Any

from playwright.sync_api import Page, sync_playwright

from kourou.client.consumer.outcomes import RetryLater
from kourou_rigs.console_scene import ConsoleScene

HERE = Path(__file__).parent
STEPS = 90
STEP_MS = 300
SAMPLE_MS = 1_000
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"]


def main() -> int:
    """Create the pictures; returns the exit code."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("this needs Chromium: apt-get install chromium\n")
        return 1
    logging.disable(logging.WARNING)
    with (
        tempfile.TemporaryDirectory() as folder,
        ConsoleScene(Path(folder), sample_interval_ms=SAMPLE_MS) as scene,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1240, "height": 1000})
        traced = _trace(scene, page)
        _traffic(scene, page)
        _picture(scene, page, "", HERE / "console.png")
        page.set_viewport_size({"width": 1240, "height": 640})
        _picture(scene, page, f"trace?id={traced}&topic=payments", HERE / "trace.png")
        browser.close()
    return 0


def _trace(scene: ConsoleScene, page: Page) -> str:
    """Send a payment that one group consumes immediately and another at the second attempt.

    Returns its message ID.
    """
    attempts, pause = itertools.count(1), Event()

    def book(_message: Any) -> None:
        pause.wait(0.04)

    def audit(_message: Any) -> None:
        pause.wait(0.12)
        if next(attempts) == 1:
            raise RetryLater("the ledger is closed", delay_level=1)

    for group, handler in (("booking", book), ("audit", audit)):
        scene.listen(group, "payments", handler)
    sent = scene.producer.send("payments", b'{"amount": 120}', keys="p-2", tag="card")
    page.wait_for_timeout(6_000)
    return sent.message_id


def _traffic(scene: ConsoleScene, page: Page) -> None:
    """Send departures in waves, for the time range of the charts."""
    begin = 1_000
    for step in range(STEPS):
        count = 6 + round(5 * math.sin(step / 9))
        scene.send(count, begin)
        begin += count
        page.wait_for_timeout(STEP_MS)


def _picture(scene: ConsoleScene, page: Page, path: str, target: Path) -> None:
    page.goto(f"http://{scene.console.address}/#/{path}")
    page.locator("main h1").wait_for()
    page.locator("main [aria-busy=true]").first.wait_for(state="detached")
    page.wait_for_timeout(1_000)
    page.screenshot(path=target)
    sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    sys.exit(main())
