"""Every program of examples/ runs as it stands, against a broker, and prints what it promises."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from kourou.cli.up import layers_lacking
from kourou.testing.cluster import Cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 60
SETTINGS = {
    "messageDelayLevel": "1s 2s",
    "transactionTimeOut": 100,
    "transactionCheckInterval": 100,
}
"""What takes a second or a minute with the usual ones."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("examples"), settings=SETTINGS) as running:
        yield running


def skip_without_jail() -> None:
    if lacking := layers_lacking():
        pytest.skip(f"needs a kernel layer: {', '.join(lacking)}")


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """Broadcasting keeps its progress at home."""
    return os.environ | {"NAMESRV_ADDR": cluster.address, "HOME": str(tmp_path)}


def run(name: str, environment: Mapping[str, str]) -> list[str]:
    """What it prints; it ends by itself, and well."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_is_tried_here_and_told_of_in_its_page() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    text = Path(__file__).read_text(encoding="utf-8")
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {name for name in names if not re.search(rf'"{name}(\.py)?"', text)} == set()
    assert {name for name in names if f"({name}.py)" not in page} == set()


@pytest.mark.feature("F001", "F002", "F003", "F213")
def test_quickstart(environment: dict[str, str]) -> None:
    """The consumer goes on until Ctrl-C; the second one has nothing left to consume."""
    sent = run("quickstart_producer", environment)
    assert len(sent) == 10
    assert all(line.startswith("SEND_OK quickstart/broker-a/") for line in sent)
    shown, end = consumed_until_ctrl_c(environment, 10)
    assert sorted(line.split(" ", 1)[1] for line in shown) == [
        f"TagA Hello Kourou {number}" for number in range(10)
    ]
    assert end == "closed: what was consumed is committed"
    again = run("quickstart_producer", environment)
    shown, _ = consumed_until_ctrl_c(environment, 10)
    places = [line.split(" ", 1)[0] for line in shown]
    assert sorted(places) == sorted(line.split()[1] for line in again), "not the old ones"


@contextmanager
def started(name: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """One that goes on until Ctrl-C. Where it hangs, it ends and shows what its threads do."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "faulthandler", EXAMPLES / f"{name}.py"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        patience = threading.Timer(SECONDS_MAX, running.send_signal, [signal.SIGABRT])
        patience.start()
        try:
            yield running
        finally:
            patience.cancel()
            running.kill()


def consumed_until_ctrl_c(environment: Mapping[str, str], count: int) -> tuple[list[str], str]:
    with started("quickstart_consumer", environment) as running:
        assert running.stdout is not None
        assert "Ctrl-C" in running.stdout.readline()
        lines = [running.stdout.readline().strip() for _ in range(count)]
        running.send_signal(signal.SIGINT)
        end = running.stdout.read().strip()
        assert running.wait(SECONDS_MAX) == 0
    return lines, end


def test_ctrl_c_may_come_while_the_consumer_starts(environment: dict[str, str]) -> None:
    assert consumed_until_ctrl_c(environment, 0) == ([], "closed: what was consumed is committed")


@pytest.mark.feature("F016", "F178", "F179")
def test_ordermessage(environment: dict[str, str]) -> None:
    *early, last = run("ordermessage", environment)
    failed = [line for line in early if "the bank" in line]
    orders = [line.split() for line in (*early, last) if line not in failed]
    assert len(orders) == len({order for order, *_ in orders}) == 10
    assert all(steps == ["created", "paid", "packed", "sent"] for _, *steps in orders)
    assert failed
    assert {line.split(":")[0] for line in failed} == {orders[2][0]}


@pytest.mark.feature("F252", "F254", "F255")
def test_transaction(environment: dict[str, str]) -> None:
    """What was refused is never consumed; what was unclear is, after the broker has asked."""
    lines = run("transaction", environment)
    sent = dict(line.split(" ", 1) for line in lines if re.search(r": [A-Z]+$", line))
    assert sorted(sent.values()) == [
        *("done: COMMIT", "done: COMMIT", "refused: ROLLBACK", "refused: ROLLBACK"),
        *("unclear: UNKNOWN", "unclear: UNKNOWN"),
    ]
    consumed = {line.split()[0] for line in lines if line.endswith("consumed")}
    assert consumed == {name for name, fate in sent.items() if not fate.startswith("refused")}
    asked = {line.split()[4].rstrip(":") for line in lines if "the broker asks" in line}
    # A slow machine may be asked about others, too: those it has not decided for a second.
    assert asked >= {name for name, fate in sent.items() if fate.startswith("unclear")}


@pytest.mark.feature("F234", "F237")
def test_filter(environment: dict[str, str]) -> None:
    lines = run("filter", environment)
    tags = ("TagA", "TagB", "TagC")
    told = [(f"message {a} ({tags[a % 3]}, a={a})", tags[a % 3], a) for a in range(9)]
    assert sorted(lines) == sorted(
        [f"by-tags: {text}" for text, tag, _ in told if tag != "TagB"]
        + [f"by-properties: {text}" for text, tag, a in told if tag != "TagC" and a <= 3]
    )


@pytest.mark.feature("F238", "F240", "F242")
def test_filter_python(environment: dict[str, str], tmp_path: Path) -> None:
    """Two runs: the same texts are the same versions, and nothing of the first is left."""
    skip_without_jail()
    with Cluster(tmp_path, filter_servers=1) as running:
        environment["NAMESRV_ADDR"] = running.address
        for _ in range(2):
            lines = run("filter_python", environment)
            found = sorted((line.split(":")[0], int(line.split()[2].rstrip(","))) for line in lines)
            assert found == [
                *(("large-orders", number) for number in (5, 6, 7, 8)),
                *(("near-orders", number) for number in (1, 3)),
            ]


@pytest.mark.feature("F007", "F014")
def test_broadcast(environment: dict[str, str]) -> None:
    prices = " ".join(f"price {number}" for number in range(5))
    expected = [f"board {board} shows 5: {prices}" for board in (1, 2)]
    assert run("broadcast", environment) == expected
    assert run("broadcast", environment) == expected, "each board goes on where it was"


@pytest.mark.feature("F248")
def test_delay(environment: dict[str, str]) -> None:
    """Never early. How late depends on the machine."""
    lines = run("delay", environment)
    found = [re.fullmatch(r"level (\d) came after ([\d.]+) s", line) for line in lines]
    waited = {int(one[1]): float(one[2]) for one in found if one}
    assert sorted(waited) == [0, 1, 2]
    assert waited[1] >= 1
    assert waited[2] >= 2


def test_batch(environment: dict[str, str]) -> None:
    first, second, third = run("batch", environment)
    places = re.findall(r"batch/broker-a/(\d)@(\d+)", first)
    assert len({queue for queue, _ in places}) == 1
    assert [int(offset) - int(places[0][1]) for _, offset in places] == [0, 1, 2]
    assert second == "1000 messages in 4 queues"
    assert third.startswith("1003 consumed, up to ")


def test_request_reply(environment: dict[str, str]) -> None:
    assert run("request_reply", environment) == ["2 * 21 = 42", "2 * 1000 = 2000"]


@pytest.mark.feature("F213", "F221", "F224")
def test_retry(environment: dict[str, str]) -> None:
    """The second time all is as the first time: the dead letter was dealt with."""
    for _ in range(2):
        lines = run("retry", environment)
        assert sorted(lines[:4]) == [
            "Ann: delivered at attempt 1",
            "Ben: delivered at attempt 2",
            "Ben: not at home",
            "Zoe: a dead letter",
        ]
        assert lines[4:] == ["retry, b'Zoe': Zoe is unknown", "Zoe: delivered at attempt 1"]


MQTT_BROKER = """
import asyncio, sys
from amqtt.broker import Broker

async def serve():
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    listener = {"type": "tcp", "bind": "127.0.0.1:0"}
    broker = Broker({"listeners": {"default": listener}, "plugins": plugins})
    await broker.start()
    print(broker._servers["default"].instance.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await broker.shutdown()

asyncio.run(serve())
"""


@pytest.fixture
def mqtt_broker() -> Iterator[int]:
    """The port of an MQTT broker that ends with the test."""
    with subprocess.Popen(
        [sys.executable, "-c", MQTT_BROKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            yield int(running.stdout.readline())
            running.stdin.close()
            running.wait(SECONDS_MAX)
        finally:
            running.kill()


@pytest.mark.feature("F382")
def test_mqtt_bridge(environment: dict[str, str], cluster: Cluster, mqtt_broker: int) -> None:
    """A device reports, and is told; both through a broker of MQTT's and through ours."""
    environment |= {"MQTT_PORT": str(mqtt_broker)}
    sent = cluster.sent()
    told: queue.Queue[bytes] = queue.Queue()
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, "pump-7")
    device.on_message = lambda _mqtt, _data, message: told.put(message.payload)
    device.connect("127.0.0.1", mqtt_broker)
    device.loop_start()
    with cluster.client("test") as mq, started("mqtt_bridge", environment) as bridge:
        try:
            assert bridge.stdout is not None
            assert "Ctrl-C" in bridge.stdout.readline()
            device.subscribe("devices/pump-7/command", qos=1)
            device.publish("devices/pump-7/report", b'{"bar": 3}', qos=1).wait_for_publish(10)
            assert bridge.stdout.readline() == "pump-7 reports: b'{\"bar\": 3}'\n"
            report = sent.one("device-reports", key="pump-7")
            assert report.raw_body == b'{"bar": 3}'
            mq.send("device-commands", b"stop", keys=["pump-7"], order_key="pump-7")
            assert told.get(timeout=SECONDS_MAX) == b"stop"
            assert bridge.stdout.readline() == "command for pump-7: b'stop'\n"
            bridge.send_signal(signal.SIGINT)
            assert bridge.stdout.read() == "closed: what was not carried yet is kept where it is\n"
            assert bridge.wait(SECONDS_MAX) == 0
        finally:
            device.disconnect()
            device.loop_stop()
