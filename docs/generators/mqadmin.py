"""docs/mqadmin.md: the table of RocketMQ's commands that mqadmin ran against Kourou."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from generators.readme import replaced
from generators.tables import table

PAGE = "docs/mqadmin.md"
RESULTS = "tests/interop/results.json"
HELP = "tests/golden/rocketmq-4.9.8/mqadmin-help.txt"
CLIENT = "mqadmin-commands"


def page(root: Path) -> str:
    """The page with its table according to the results."""
    results = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    commands = re.findall(r"^== (\w+)$", (root / HELP).read_text(encoding="utf-8"), re.MULTILINE)
    text = (root / PAGE).read_text(encoding="utf-8")
    return replaced(text, CLIENT, RESULTS, "\n".join(commands_run(commands, results[CLIENT])))


def commands_run(commands: list[str], told: dict[str, Any]) -> list[str]:
    """A row for each command; below them the tested version of Kourou."""
    known = told["kourou"]
    passed: dict[str, bool] = known["passed"]
    words = {True: "run: ✓", False: "run: ✗", None: "not in 4.9.8"}
    rows = [(f"`{name}`", words[passed.get(name)]) for name in commands]
    done = sum(passed.get(name, False) for name in commands)
    return [
        *table(("Command of mqadmin 4.9.7", "mqadmin 4.9.8 with Kourou"), rows),
        f"{done} of {len(passed)} passed. Kourou {known['version']}, commit {known['commit']}.",
    ]


PAGES = {PAGE: page}
