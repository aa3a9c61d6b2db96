"""Every `kourou …` that a page tells to type is a command, and has the options it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from kourou.cli.commands import app
from kourou.cli.services import STOPPABLE
from kourou.service.os_processes import PREFIX

BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_TEXT = re.compile(r"`((?:\./)?kourou [^`]+)`")
IN_BLOCK = re.compile(r"^(?:[^#\n]* exec \w+ )?((?:\./)?kourou .+)$", re.MULTILINE)
HISTORY = "CHANGELOG.md"
"""It tells of what was; commands in it may be gone."""

ITEMS_OF_A_SETTING = {"namesrv", "broker", "ha-replica", "filter-server", "spark-etl", "console"}
"""They take any setting as an option, and check it themselves."""


@pytest.fixture(scope="module")
def commands() -> Any:
    return typer.main.get_command(app)


def lines(page: str) -> Iterator[str]:
    """What is to be typed, without the comment behind it."""
    for block in BLOCK.findall(page):
        for line in IN_BLOCK.findall(block):
            yield re.split(r"\s{2,}#?|\s#", line)[0]
    for line in IN_TEXT.findall(" ".join(BLOCK.sub("", page).split())):
        yield line


def wrong(commands: Any, line: str) -> str:
    """What is wrong with a line, or ""."""
    _, *words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", line).split()
    command, path = commands, []
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words[0])
        command = command.commands[words.pop(0)]
    if words == ["…"]:  # any command
        return ""
    group = getattr(command, "commands", {}) and not command.invoke_without_command
    if group and words and not words[0].startswith("-"):
        return f"{line}: {' '.join(['kourou', *path])} has no command {words[0]}"
    if path and path[0] in ITEMS_OF_A_SETTING:
        return ""
    known = {"--help"} | {
        name
        for one in command.params
        for name in (*one.opts, *one.secondary_opts)
        if name[0] == "-"
    }
    strange = [word for word in words if re.match(r"--?[a-zA-Z]", word) and word not in known]
    return f"{line}: {' '.join(path)} has no {' '.join(strange)}" if strange else ""


def test_what_pages_tell_to_type_can_be_typed(texts: dict[str, str], commands: Any) -> None:
    told = {
        (path, line)
        for path, text in texts.items()
        if path.endswith(".md") and path != HISTORY
        for line in lines(text)
    }
    assert len(told) > 40, "the look sees nothing"
    mistakes = [
        f"{path}: {found}" for path, line in sorted(told) if (found := wrong(commands, line))
    ]
    assert not mistakes, "\n".join(mistakes)


def test_the_list_of_commands_names_what_they_take(texts: dict[str, str], commands: Any) -> None:
    rows = dict(
        re.findall(r"^\| `kourou (\w+)` \| (.+) \|$", texts["docs/operating.md"], re.MULTILINE)
    )
    taken = {"shutdown": STOPPABLE, "bench": commands.commands["bench"].commands}
    for name, words in taken.items():
        missing = [word for word in words if not re.search(rf"`(?:{name} )?{word}`", rows[name])]
        assert not missing, f"docs/operating.md: `kourou {name}` lacks {', '.join(missing)}"


def test_the_page_on_restarts_names_every_process_that_can_be_told_to_end(
    texts: dict[str, str],
) -> None:
    page = texts["docs/operating.md"]
    [section] = re.findall(
        r"^## Restarting a broker without a failed send\n(.*?)^## ", page, re.MULTILINE | re.DOTALL
    )
    process = {service: (PREFIX + service)[:15] for service in STOPPABLE}
    missing = [word for pair in process.items() for word in pair if f"`{word}`" not in section]
    assert not missing, f"docs/operating.md: {', '.join(missing)}"


def test_the_looks_see_what_they_look_for(commands: Any) -> None:
    page = "```\nx exec a kourou tail t --first  # c\n```\n`./kourou up\n--trace` and `kourou.x`\n"
    assert list(lines(page)) == ["kourou tail t --first", "./kourou up --trace"]
    assert wrong(commands, "kourou tail t --first") == ""
    assert wrong(commands, "kourou admin updateTopic -t T -w 4") == ""
    assert "kourou has no command trail" in wrong(commands, "kourou trail")
    assert "admin has no command make" in wrong(commands, "kourou admin make")
    assert "tail has no --last" in wrong(commands, "kourou tail t --last")
