"""The lines of docs/http-consuming.md do what stands below them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec

from kourou.testing.cluster import Cluster
from kourou.testing.console import ConsoleHere, HttpAnswer

ANYTHING = "…"
BLOCK = re.compile(r"```(sh|json)\n(.*?)```", re.DOTALL)


def test_every_line_of_the_page(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs/http-consuming.md"
    lease = ""
    last: Any = None
    commands = 0
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster) as console:
        cluster.create_topic("parcels", queues=1)
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "json":
                shown = msgspec.json.decode(text)
                assert agrees(shown, last), f"{last} is not {text}"
                continue
            for line in text.splitlines():
                commands += 1
                answer = asked(console, line.replace("$LEASE", lease))
                assert answer.status in (200, 202), f"{line}: {answer.text}"
                last = answer.json
                if "/leases --json" in line:
                    lease = last["items"][0]["lease"]
    assert commands >= 7


def agrees(shown: Any, found: Any) -> bool:
    """Is all that is shown so? What is left out may be anything."""
    if shown == ANYTHING:
        return True
    if isinstance(shown, dict):
        return all(key in found and agrees(value, found[key]) for key, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(agrees, shown, found))
    return bool(shown == found)


def asked(console: ConsoleHere, line: str) -> HttpAnswer:
    """A line for curl, asked without it."""
    words = shlex.split(line)
    assert words.pop(0) == "curl"
    method, body, url = "GET", None, ""
    headers: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers.append((name, value))
        elif word in ("-d", "--json"):
            method, body = "POST", words.pop(0).encode()
            kind = "application/json" if word == "--json" else "application/x-www-form-urlencoded"
            headers.append(("Content-Type", kind))
        else:
            url = word
    return console.request(method, url.removeprefix("localhost:8080"), body=body, headers=headers)
