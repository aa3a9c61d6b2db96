"""The pages that users meet first, one after the other against one `kourou up --flights`.

Every block of every page works although the pages before it have left their topics and groups in
the cluster. That each prints what it promises is the matter of the pages' own tests.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kourou.cli.up import layers_lacking
from kourou.sync import Client

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/client.md",
    "docs/http.md",
    "docs/http-consuming.md",
    "docs/filters.md",
)
NAME_SERVER, CONSOLE = "127.0.0.1:9876", "127.0.0.1:8080"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SYSTEM = re.compile(r"[%_A-Z]|rmq_sys_|broker-")
"""How names of topics begin that no page has made."""

BLOCK_S = 300


@dataclass(frozen=True)
class Up:
    """A running `kourou up --flights`, and where a reader's blocks are run."""

    name_server: str
    console: str
    folder: Path

    def here(self, text: str) -> str:
        """The text with the addresses of this cluster."""
        return text.replace(NAME_SERVER, self.name_server).replace(CONSOLE, self.console)

    def run(self, *command: str, env: dict[str, str] | None = None) -> str:
        """What a command that has to succeed prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | {"NAMESRV_ADDR": self.name_server} | (env or {}),
            capture_output=True,
            text=True,
            timeout=BLOCK_S,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run_program(self, code: str, name: str) -> None:
        """A program of a page, in this process: it need not be started and import everything."""
        file = self.folder / name
        file.write_text(self.here(code))
        if "os.fork()" in code:
            self.run(sys.executable, name)
        else:
            runpy.run_path(str(file), run_name="__main__")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Of the machine it takes free ports only, and a folder of its own."""
    command = ["up", "--flights", "--free-ports", "--folder", str(tmp_path / "cluster")]
    running = subprocess.Popen(
        [sys.executable, "-m", "kourou.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    told = ""
    try:
        found: dict[str, str] = {}
        for line in running.stdout:
            told += line
            for name, pattern in (
                ("name_server", r"NAMESRV_ADDR=(127\.0\.0\.1:\d+)"),
                ("console", r"http://(127\.0\.0\.1:\d+)\s+console"),
            ):
                if name not in found and (match := re.search(pattern, line)):
                    found[name] = match[1]
            if "name_server" in found:
                break
        assert len(found) == 2, told
        folder = tmp_path / "reader"
        folder.mkdir()
        # What a reader's shell calls `kourou`.
        (folder / "kourou").write_text(f'#!/bin/sh\nexec {sys.executable} -m kourou.cli "$@"\n')
        (folder / "kourou").chmod(0o755)
        yield Up(folder=folder, **found)
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=BLOCK_S)


def programs(text: str) -> list[str]:
    """The Python that speaks to the cluster; others are parts of a pytest, or a filter's text."""
    return [code for kind, code in BLOCK.findall(text) if kind == "python" and NAME_SERVER in code]


def script(text: str) -> str:
    """All blocks for a shell, as a reader types them into one."""
    return "\n".join(code for kind, code in BLOCK.findall(text) if kind == "sh")


def topics_with_sizes(address: str) -> dict[str, int]:
    """How many messages were ever stored in each topic of a page."""
    with Client(address, group="page-watch") as mq:
        names = [name for name in mq.admin.topics.list() if not SYSTEM.match(name)]
        return {
            name: sum(stats.max_offset for stats in mq.admin.topics.stats(name).values())
            for name in names
        }


@pytest.mark.timeout(900)  # some twenty commands: minutes on a machine with much else to do
def test_every_block_works_after_those_of_the_pages_before(up: Up) -> None:
    if lacking := layers_lacking():
        pytest.skip(f"needs a kernel layer: {', '.join(lacking)}")
    before = topics_with_sizes(up.name_server)
    used = dict.fromkeys(before, "kourou up --flights")
    ran = 0
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        if page == "docs/filters.md":
            late = next(code for kind, code in BLOCK.findall(text) if kind == "python")
            (up.folder / "late.py").write_text(late)
        for program in programs(text):
            if "register(spark)" in program:
                continue  # tests/spark/test_readme.py runs it in Spark's shell
            ran += 1
            up.run_program(program, f"{ran}.py")
        if commands := script(text):
            path = {"PATH": f"{up.folder}:{os.environ['PATH']}"}
            up.run("bash", "-euo", "pipefail", "-c", up.here(commands), env=path)
            ran += 1
        after = topics_with_sizes(up.name_server)
        changed = {name for name, size in after.items() if size != before.get(name)}
        for topic in changed - {"flights"}:
            assert used.setdefault(topic, page) == page, f"{page} uses {topic} of {used[topic]}"
        before = after
    assert ran > 30, "the look sees nothing"


def test_no_two_pages_name_one_group() -> None:
    named: dict[str, set[str]] = {}
    pattern = r'(?:[ (]|producer_|consumer_)group="([\w-]+)"|/groups/([\w-]+)|-g ([\w-]+)'
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for kind, code in BLOCK.findall(text):
            if kind in {"python", "sh"} and "kourou_broker" not in code:
                for groups in re.findall(pattern, code):
                    named.setdefault("".join(groups), set()).add(page)
    assert len(named) > 20, "the look sees nothing"
    assert {group: sorted(pages) for group, pages in named.items() if len(pages) > 1} == {}
