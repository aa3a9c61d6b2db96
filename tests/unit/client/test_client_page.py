"""Every example of docs/client.md is run as it stands there, and that of getting started."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kourou import Client as AsyncClient
from kourou import ProducerSettings
from kourou.sync import Client
from kourou_filter_server.zygote_link import missing

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = "127.0.0.1:9876"
DIFFERS = [
    (re.compile(r"broker-a/\d+@\d+"), "broker-a/Q@N"),
    (re.compile(r"\bid [0-9A-F]{32}\b"), "id ID"),
]
"""What is another one each time."""


class Example(NamedTuple):
    """A program, and what the page says that it prints."""

    heading: str
    code: str
    output: str


def examples(page: Path) -> list[Example]:
    found = []
    heading = ""
    pattern = r"^#+ ([^\n]*)$|^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?"
    for one in re.finditer(pattern, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if one[2] is None:
            heading = one[1]
        else:
            found.append(Example(heading, one[2], one[3] or ""))
    return found


EXAMPLES = examples(ROOT / "docs" / "client.md")


def same_for_all(text: str) -> str:
    for pattern, name in DIFFERS:
        text = pattern.sub(name, text)
    return text


def run(example: Example, address: str) -> dict[str, Any]:
    """Run it here, as a program; what it defined."""
    assert ADDRESS in example.code
    names: dict[str, Any] = {"__name__": "__main__"}
    program = example.code.replace(ADDRESS, address)
    # So that its source is found, as that of a program in a file is.
    file = f"<{example.heading}>"
    linecache.cache[file] = (len(program), None, program.splitlines(keepends=True), file)
    exec(compile(program, file, "exec", dont_inherit=True), names)
    return names


def test_the_page_has_an_example_of_everything() -> None:
    page = "".join(example.code for example in EXAMPLES)
    for face in (Client, AsyncClient):
        names = {name for kind in face.__mro__ for name in vars(kind) if not name.startswith("_")}
        assert {"send", "subscribe", "listen"} < names
        used = {name for name in names if f"mq.{name}" in page}
        for_gateways = {"lease_consumer", "prepare", "decide"}  # applications listen, and transact
        assert names - used <= {"open", "close", "producer"} | for_gateways
    assert all(example.output for example in EXAMPLES), "each says what it prints"


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[f"{n}-{one.heading[:20]}" for n, one in enumerate(EXAMPLES)]
)
def test_it_prints_what_the_page_says(
    example: Example, kourou_broker, kourou_cluster, capfd
) -> None:
    address = kourou_broker.address
    if "Filter" in example.code:
        lacking = missing()
        if lacking:
            pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
        address = kourou_cluster(brokers=1, filter_servers=1).address
    if "os.fork()" in example.code:
        program = example.code.replace(ADDRESS, address)
        subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
    else:
        run(example, address)
    printed, complaints = capfd.readouterr()
    assert same_for_all(printed) == same_for_all(example.output)
    assert complaints == ""


def test_the_errors_are_those_of_the_table(kourou_broker, kourou_chaos, capfd) -> None:
    """`sell` of the page meets what its table has."""
    (example,) = (one for one in EXAMPLES if "def sell" in one.code)
    sell = run(example, kourou_broker.address)["sell"]
    once = ProducerSettings(producer_group="sales", retry_times_when_send_failed=0)
    with Client(kourou_broker.address, producer=once) as mq:
        kourou_chaos.drop_answers("send", cut=True)
        assert sell(mq, {"id": "A-3"}) == "perhaps sold"
        assert sell(mq, {"id": "A-3"}) == "SEND_OK"
        kourou_chaos.fill_disk()
        assert sell(mq, {"id": "A-4"}) == "not sold, try later"


def test_the_example_of_getting_started(kourou_broker, capfd) -> None:
    page = examples(ROOT / "docs" / "quickstart.md")
    (example,) = (one for one in page if one.heading == "From Python")
    with Client(kourou_broker.address) as mq:
        mq.send("breakfasts", '{"id": "A-1", "amount": 42}', tag="paid", keys=["A-1"])
    run(example, kourou_broker.address)
    printed = same_for_all(capfd.readouterr().out)
    assert printed.replace("paid Order(id='A-1', amount=42)\n", "") == same_for_all(example.output)
