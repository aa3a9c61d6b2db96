"""What the console needs before anything is seen: its shell, and no answer of the API.

`pytest tests/browser/test_first_paint.py -s` prints how much that is and how long it takes here.
"""

from __future__ import annotations

import sys
from typing import Any

ENTRIES = """async () => {
    const paint = await new Promise((resolve) => {
        new PerformanceObserver((list) => {
            for (const one of list.getEntriesByName("first-contentful-paint")) resolve(one);
        }).observe({type: "paint", buffered: true});
    });
    const loaded = [...performance.getEntriesByType("navigation"),
                    ...performance.getEntriesByType("resource")];
    const before = loaded.filter(({responseEnd: end}) => 0 < end && end <= paint.startTime);
    return {
        paints: performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]),
        urls: before.map((one) => one.name),
        bytes: before.reduce((sum, one) => sum + one.transferSize, 0),
    };
}"""
"""Waits for the paint itself: `wait_for_function` uses `eval`, which the page's policy refuses."""

BEYOND = ("/v1/", "/js/pages/", "uplot.js")
"""What the shell can do without: answers, pages, charts."""


def looked_at(walk: Any) -> dict[str, Any]:
    """What the browser tells of its first paint, once that has been; prints it."""
    found: dict[str, Any] = walk.page.evaluate(ENTRIES)
    paints = ", ".join(f"{name} {at_ms:.0f} ms" for name, at_ms in found["paints"])
    before = f"{len(found['urls'])} requests, {found['bytes'] / 1_000:.1f} kB before"
    sys.stdout.write(f"{before}; {paints}\n")
    return found


def test_the_frame_is_painted_while_nothing_is_answered(walk) -> None:
    """No page's module and no answer is needed: they are kept back here, for good."""
    kept: list[str] = []

    def keep(route: Any) -> None:
        kept.append(route.request.url)

    walk.page.route(lambda url: any(part in url for part in BEYOND), keep)
    walk.page.goto(f"{walk.address}#topics")
    found = looked_at(walk)
    assert "first-contentful-paint" in dict(found["paints"])
    assert kept, "the page asks for more than its shell"
    assert set(found["urls"]).isdisjoint(kept)
    assert walk.page.get_by_role("navigation", name="Pages").is_visible()


def test_a_first_visit_as_it_is(walk) -> None:
    """Times are told and not judged: they are those of this machine, and of what else it does."""
    walk.to("topics")
    found = looked_at(walk)
    assert all(url.startswith(walk.address) for url in found["urls"])
