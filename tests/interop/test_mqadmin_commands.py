"""Every command of RocketMQ's mqadmin 4.9.8, the real tool, on our servers; and what each changed.

A step is a command line and what must be so afterwards, looked up through Kourou's own admin client
or, where a command only shows something, in what it printed. One JVM runs them all, in this order:
later ones look at what earlier ones have made.
"""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.interop import rows, servers

from kourou import __version__
from kourou.client.settings.client_settings import ProducerSettings
from kourou.model.topic import MessageQueue
from kourou.sync import Client

PATIENCE_S = 60
TRACE_S = 10
TRACE_SENDS = 6
SHORT_S = 8
"""For the commands that never end."""

NO_ACL = "this version of Kourou has no access control lists; nothing was changed"


@dataclass
class Bench:
    """`text` is what the command printed; ids and keys are of the messages that were sent."""

    mq: Client
    folder: Path
    text: str = ""
    offset_id: str = ""
    key: str = ""
    trace_key: str = ""
    again: Callable[[], tuple[bool, str]] = lambda: (True, "")

    @property
    def admin(self) -> Any:
        return self.mq.admin

    def config(self, topic: str = "Mq") -> Any:
        return self.admin.topics.config(topic)["broker-a"]

    def group(self, name: str = "mqg") -> Any:
        return self.admin.groups.configs()["broker-a"].get(name)

    def count(self, topic: str) -> int:
        return sum(one.max_offset for one in self.admin.topics.stats(topic).values())

    def offsets(self, group: str) -> dict[int, int]:
        found = self.admin.offsets.of(group, "Mq")
        return {queue.queue_id: one.consumer_offset for queue, one in found.items()}

    def ends(self) -> dict[int, int]:
        stats = self.admin.topics.stats("Mq")
        return {queue.queue_id: one.max_offset for queue, one in stats.items()}

    def until(self, satisfied: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
        """What comes about soon after a command has ended."""
        end = time.monotonic() + within_s
        while not satisfied():
            if time.monotonic() > end:
                return False
            self.mq.admin.topics.list()
        return True

    def sent(self) -> bool:
        """Remember the message that sendMessage has sent."""
        [found] = self.admin.messages.by_key("Mq", "key1")
        self.offset_id, self.key = found.offset_message_id, found.message_id
        return found.body == b"hello" and found.tag == "tagA"

    def traced(self) -> bool:
        """Is the trace of a message there? The tool may end before it has sent it: once more."""
        for _ in range(TRACE_SENDS):
            if self.until(self._has_trace, TRACE_S):
                return True
            self.again()
        return False

    def _has_trace(self) -> bool:
        for found in self.admin.messages.by_key("Traced", "key2"):
            self.trace_key = found.message_id
            if self.admin.messages.by_key("RMQ_SYS_TRACE_TOPIC", self.trace_key):
                return True
        return False

    def commit(self) -> bool:
        self.admin.offsets.commit("mqg", {MessageQueue("Mq", "broker-a", 0): 1})
        return True


Check = Callable[[Bench], object]


def shows(*words: str) -> Check:
    return lambda it: all(word in it.text for word in words)


STEPS: tuple[tuple[str, Check], ...] = (
    # topics
    ("updateTopic -b {b} -t Mq -r 3 -w 2", lambda it: it.config().read_queue_nums == 3
     and it.config().write_queue_nums == 2),
    ("updateTopicPerm -b {b} -t Mq -p 4", lambda it: it.config().perm == 4),
    ("updateTopicPerm -b {b} -t Mq -p 6", lambda it: it.config().perm == 6),
    ("topicList", shows("Mq")),
    ("topicRoute -t Mq", shows('"readQueueNums":3', '"writeQueueNums":2')),
    ("topicClusterList -t Mq", shows("DefaultCluster")),
    ("updateOrderConf -m put -t Mq -v broker-a:2",
     lambda it: it.admin.name_servers.get("ORDER_TOPIC_CONFIG", "Mq") == "broker-a:2"),
    ("updateOrderConf -m delete -t Mq",
     lambda it: it.admin.name_servers.get("ORDER_TOPIC_CONFIG", "Mq") is None),
    ("allocateMQ -t Mq -i 10.0.0.1,10.0.0.2", shows("10.0.0.1", "10.0.0.2", '"queueId":2')),
    # messages
    ("sendMessage -t Mq -p hello -k key1 -c tagA -b broker-a -i 0", Bench.sent),
    ("topicStatus -t Mq", shows("broker-a")),
    ("queryMsgById -i {offset_id}", shows("key1", "tagA")),
    ("queryMsgByKey -t Mq -k key1", lambda it: it.key in it.text),
    ("queryMsgByUniqueKey -t Mq -i {key}", shows("Queue Offset:        0", "[key1]")),
    ("queryMsgByOffset -t Mq -b broker-a -i 0 -o 0", lambda it: it.offset_id in it.text),
    ("queryCq -t Mq -q 0 -i 0 -c 1 -b {b}", shows("max: 1, min: 0")),
    ("printMsg -t Mq", shows("hello")),
    ("printMsgByQueue -t Mq -a broker-a -i 0 -p true -d true", shows("hello")),
    ("consumeMessage -t Mq -b broker-a -i 0 -o 0 -c 1", shows("Consume ok", "tagA")),
    ("sendMessage -t Traced -p traced -k key2 -b broker-a -i 0 -m true", Bench.traced),
    ("queryMsgTraceById -i {trace_key}", shows("Pub", "success")),
    ("sendMsgStatus -b broker-a -s 64 -c 2", lambda it: it.count("broker-a") >= 2),
    ("checkMsgSendRT -t Mq -a 4 -s 10", lambda it: sum(it.ends().values()) == 5),
    # groups
    ("updateSubGroup -b {b} -g mqg -r 5", lambda it: it.group().retry_max_times == 5),
    ("updateSubGroup -b {b} -g mqg2", lambda it: it.group("mqg2") is not None and it.commit()),
    ("getConsumerConfig -g mqg", shows("retryMaxTimes", "5")),
    ("consumerProgress -g mqg", shows("Mq", "broker-a")),
    ("brokerConsumeStats -b {b}", shows("mqg", "Diff Total")),
    ("cloneGroupOffset -s mqg -d mqg2 -t Mq -o true", lambda it: it.offsets("mqg2")[0] == 1),
    ("skipAccumulatedMessage -g mqg -t Mq -f true", lambda it: it.offsets("mqg") == it.ends()),
    ("resetOffsetByTime -g mqg -t Mq -s 0 -f true",
     lambda it: set(it.offsets("mqg").values()) == {0}),
    # who is connected
    ("producer -b {b}", shows("producer group (p)", "PYTHON")),
    ("producerConnection -g p -t Mq", shows("PYTHON")),
    ("consumerConnection -g live", shows("PYTHON", "Mq")),
    ("consumerStatus -g live", shows("Rebalance OK")),
    # brokers and clusters
    ("clusterList", shows("DefaultCluster", "broker-a")),
    ("brokerStatus -b {b}", shows("bootTimestamp", "msgPutTotalTodayNow")),
    ("statsAll", shows("#Accumulation", "Mq")),
    ("getBrokerConfig -b {b}", shows("autoCreateTopicEnable")),
    ("updateBrokerConfig -b {b} -k traceOn -v false",
     lambda it: it.admin.brokers.config("broker-a")["traceOn"] == "false"),
    ("updateBrokerConfig -b {b} -k aclEnable -v true",
     shows("aclEnable=true is refused: Kourou does not check RocketMQ's access control lists")),
    ("wipeWritePerm -b broker-a",
     lambda it: {one.perm for one in it.admin.topics.route("Mq").queue_datas} == {4}),
    ("addWritePerm -b broker-a",
     lambda it: {one.perm for one in it.admin.topics.route("Mq").queue_datas} == {6}),
    ("cleanExpiredCQ -b {b}", shows("success")),
    ("deleteExpiredCommitLog -b {b}", shows("success")),
    ("cleanUnusedTopic -b {b}", lambda it: "success" in it.text and sum(it.ends().values()) == 5),
    ("exportMetadata -c DefaultCluster -f {folder}",
     lambda it: '"Mq"' in (it.folder / "metadata.json").read_text(encoding="utf-8")),
    ("exportConfigs -c DefaultCluster -f {folder}",
     lambda it: "broker-a" in (it.folder / "configs.json").read_text(encoding="utf-8")),
    ("exportMetrics -c DefaultCluster -f {folder}",
     lambda it: "broker-a" in (it.folder / "metrics.json").read_text(encoding="utf-8")),
    # name servers
    ("getNamesrvConfig", shows("listenPort")),
    ("updateNamesrvConfig -k listenPort -v 1", shows("listenPort", "cannot be changed remotely")),
    ("updateKvConfig -s space -k key -v value",
     lambda it: it.admin.name_servers.get("space", "key") == "value"),
    ("deleteKvConfig -s space -k key",
     lambda it: it.admin.name_servers.get("space", "key") is None),
    # access control
    ("updateAclConfig -b {b} -a someaccount -s somesecret", shows(NO_ACL)),
    ("deleteAclConfig -b {b} -a someaccount", shows(NO_ACL)),
    ("clusterAclConfigVersion -b {b}", shows(NO_ACL)),
    ("updateGlobalWhiteAddr -b {b} -g 10.0.0.1", shows(NO_ACL)),
    # the end
    ("deleteSubGroup -b {b} -g mqg", lambda it: it.group() is None),
    ("deleteTopic -c DefaultCluster -t Mq", lambda it: "Mq" not in it.admin.topics.list()),
    ("clusterRT -c DefaultCluster -a 1 -s 10 -i 1", shows("broker-a")),
    ("startMonitoring", lambda it: it.until(
        lambda: it.admin.groups.members("__MONITOR_CONSUMER"))),
)  # fmt: skip
ENDLESS = ("clusterRT",)


class Tool:
    """The JVM that runs mqadmin."""

    def __init__(self, classes: str, home: Path) -> None:
        home.mkdir()
        self._process = subprocess.Popen(
            [
                *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *(f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}"),
                *("-cp", classes, "MqadminLines"),
            ],
            cwd=home,  # consumerStatus leaves its files in the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.names = self._read().split()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the command ended the JVM"
        return line

    def run(self, command: str) -> tuple[bool, str]:
        """(did it end?, what it printed)."""
        assert self._process.stdin is not None
        parts = command.split()
        seconds = SHORT_S if parts[0] in ENDLESS else PATIENCE_S
        self._process.stdin.write("\t".join([str(seconds), *parts]) + "\n")
        self._process.stdin.flush()
        how, _, printed = self._read().strip().partition(" ")
        return how == "ended", base64.b64decode(printed).decode()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def bench(classes: str, folder: Path) -> Iterator[tuple[Tool, Bench, dict[str, str]]]:
    """Servers, a producer in group p, a consumer in group live, and the tool."""
    with servers.kourou_cluster(folder / "cluster") as cluster:
        tool = Tool(classes, folder / "home")
        try:
            with Client(cluster.address) as mq:
                mq.admin.topics.create("Mq", queues=2)
                mq.admin.topics.create("Traced", queues=1)
                with mq.listen("Mq", lambda message: None, group="mqg"):
                    pass  # a group that has consumed, as the tool looks for its retry topic
                in_group = ProducerSettings(producer_group="p")
                with (
                    mq.producer(in_group) as producer,
                    mq.listen("Mq", lambda message: None, group="live"),
                ):
                    producer.send("broker-a", b"first")
                    out = folder / "export"
                    places = {
                        "n": servers.tcp_address(cluster.namesrv),
                        "b": servers.tcp_address(cluster.brokers[0]),
                        "folder": str(out),
                    }
                    yield tool, Bench(mq, out), places
        finally:
            tool.close()


@pytest.mark.timeout(900)
def test_every_command_does_what_it_says(
    class_path: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong: dict[str, list[str]] = {}
    with bench(class_path, tmp_path) as (tool, it, places):
        named = {line.split()[0] for line, _ in STEPS}
        assert named == set(tool.names), named.symmetric_difference(tool.names)
        for line, check in STEPS:
            told = line.format(**places, offset_id=it.offset_id, key=it.key, trace_key=it.trace_key)
            it.again = partial(tool.run, f"{told} -n {places['n']}")
            ended, it.text = it.again()
            try:
                good = bool(check(it))
            except Exception as error:  # noqa: BLE001 - the others are tried, too
                good, it.text = False, f"{error!r}\n{it.text}"
            if not good or ended == (line.split()[0] in ENDLESS):
                how = "ended" if ended else "endless"
                wrong.setdefault(line.split()[0], []).append(f"{told}: {how}\n{it.text[-1500:]}")
    if request.config.getoption("--slow"):
        passed = {name: name not in wrong for name in named}
        rows.write_down("mqadmin-commands", "kourou", __version__, passed)
    assert not wrong, "\n\n".join(text for texts in wrong.values() for text in texts)
