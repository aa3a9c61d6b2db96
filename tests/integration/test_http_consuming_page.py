"""The commands of docs/http-consuming.md print what stands below them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere

ANYTHING = "…"
BLOCK = re.compile(r"```(sh|json)\n(.*?)```", re.DOTALL)
END = "--- end of a block ---"


def test_its_commands_print_what_the_page_shows(
    tmp_path: Path, typed: Callable[[str, str], str]
) -> None:
    page = Path(__file__).parents[2] / "docs/http-consuming.md"
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    # One shell runs all of them, as a reader's does: $LEASE is set by one block and used by others.
    script = "".join(f"{text}\necho; echo '{END}'\n" for kind, text in blocks if kind == "sh")
    assert script.count("curl ") >= 8
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster) as console:
        printed = typed(script, console.address).split(END)
    answers = [list(values(text)) for text in printed]
    number = -1
    for kind, text in blocks:
        if kind == "sh":
            number += 1
        else:
            assert agrees(json.loads(text), answers[number][-1]), f"{answers[number]} is not {text}"
    assert number >= 3


def values(text: str) -> Iterator[Any]:
    """The JSON values of a text, one behind the other."""
    rest = text.strip()
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        yield value
        rest = rest[end:].strip()


def agrees(shown: Any, found: Any) -> bool:
    """Is all that is shown so? What is left out may be anything."""
    if shown == ANYTHING:
        return True
    if isinstance(shown, dict):
        return all(key in found and agrees(value, found[key]) for key, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(agrees, shown, found))
    return bool(shown == found)
