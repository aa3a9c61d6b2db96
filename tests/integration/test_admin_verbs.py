"""The rarer verbs of `kourou admin` against a name server and two brokers in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kourou import DeadLetter
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou.testing.cluster import Cluster

Rows = list[dict[str, Any]]
Admin = Callable[..., Rows]
Run = Callable[..., Any]
TOPIC = "orders"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("verbs"), brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    producer = ProducerSettings(producer_group="till", message_trace=True)
    with Client(cluster.address, group="till", producer=producer) as opened:
        opened.admin.topics.create(TOPIC, queues=2)
        yield opened


@pytest.fixture
def run(cluster: Cluster, kourou_admin: Run) -> Run:
    return partial(kourou_admin, cluster.address)


@pytest.fixture
def admin(client: Client, run: Run) -> Admin:
    def ask(*arguments: str, code: int = 0) -> Rows:
        done = run(*arguments, "--json")
        assert done.returncode == code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


@pytest.mark.feature("F362")
def test_a_permission_is_changed_and_nothing_else(run: Run, admin: Admin) -> None:
    admin("updateTopic", "-t", "narrow", "-w", "3", "-o", "true", "-b", "broker-a")
    assert admin("updateTopicPerm", "-t", "narrow", "-p", "4") == [
        {"broker": "broker-a", "topic": "narrow", "before": 6, "perm": 4}
    ]
    (route,) = admin("topicRoute", "-t", "narrow", "-l")
    assert (route["write"], route["read"], route["perm"]) == (3, 3, 4)
    assert run("updateTopicPerm", "-t", "narrow", "-p", "5").returncode == 2
    assert run("updateTopicPerm", "-t", "nothing", "-p", "6").returncode == 1


def test_topics_are_told_with_cluster_and_groups(admin: Admin) -> None:
    assert admin("topicClusterList", "-t", TOPIC) == [{"cluster": "DefaultCluster"}]
    rows = admin("topicList", "-c")
    assert {"cluster": "DefaultCluster", "topic": TOPIC, "group": None} in rows


def test_order_settings_and_key_values(run: Run, admin: Admin) -> None:
    conf = "broker-a:2;broker-b:2"
    admin("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", conf)
    assert admin("updateOrderConf", "-t", TOPIC, "-m", "get") == [{"topic": TOPIC, "order": conf}]
    admin("updateOrderConf", "-t", TOPIC, "-m", "delete")
    assert run("updateOrderConf", "-t", TOPIC, "-m", "get").returncode == 1
    for wrong in (("put",), ("put", "-v", "broker-a"), ("set",)):
        assert run("updateOrderConf", "-t", TOPIC, "-m", *wrong).returncode == 2
    admin("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    assert admin("getKvConfig", "-s", "space") == [{"key": "key", "value": "value"}]
    assert admin("deleteKvConfig", "-s", "space", "-k", "key")[0]["remark"]
    assert run("getKvConfig", "-s", "space", "-k", "key").returncode == 1


def test_name_servers_tell_their_settings(run: Run, admin: Admin) -> None:
    assert "listenPort" in [row["key"] for row in admin("getNamesrvConfig")]
    refused = run("updateNamesrvConfig", "-k", "listenPort", "-v", "1")
    assert refused.returncode == 1
    assert "listenPort" in refused.stderr


def test_brokers_are_asked_one_by_one_or_as_a_cluster(run: Run, admin: Admin) -> None:
    assert run("brokerStatus").returncode == 2
    both = admin("getBrokerConfig", "-c", "DefaultCluster")
    assert {row["broker"] for row in both} == {"broker-a", "broker-b"}
    changed = admin("updateBrokerConfig", "-c", "DefaultCluster", "-k", "traceOn", "-v", "true")
    assert changed == [
        {"broker": name, "key": "traceOn", "value": "true"} for name in ("broker-a", "broker-b")
    ]
    assert {row["broker"] for row in admin("clusterList", "-m")} == {"broker-a", "broker-b"}
    assert len(admin("clusterList", "-i", "1", "--rounds", "1")) == 2
    assert len(admin("cleanUnusedTopic")) == 2


def test_groups_are_set_and_shown(run: Run, admin: Admin) -> None:
    options = ("-r", "3", "-d", "false", "-q", "2")
    rows = admin("updateSubGroup", "-g", "strict", *options)
    assert [(row["retry_max_times"], row["consume_broadcast_enable"]) for row in rows] == [
        (3, False)
    ] * 2
    assert admin("getConsumerConfig", "-g", "strict") == rows
    assert run("getConsumerConfig", "-g", "nobody").returncode == 1


def test_a_group_at_work(client: Client, run: Run, admin: Admin) -> None:
    for number in range(8):
        client.send(TOPIC, f"order {number}", keys=f"W-{number}", tag=["even", "odd"][number % 2])
    settings = ConsumerSettings(consumer_group="cook", consume_from_where=FIRST)
    done = threading.Semaphore(0)
    with client.listen(TOPIC, lambda _: done.release(), settings=settings):
        for _ in range(8):
            assert done.acquire(timeout=60)
        status = admin("consumerStatus", "-g", "cook")
        assert {row["client"] for row in status} == {client.client_id}
        one = admin("consumerStatus", "-g", "cook", "-i", client.client_id)
        assert {"subscription", "queue", "setting"} <= {row["kind"] for row in one}
        owners = admin("consumerProgress", "-g", "cook", "-s", "-t", TOPIC)
        assert {row["member"] for row in owners} == {client.client_id}
        (cook,) = [row for row in admin("consumerProgress") if row["group"] == "cook"]
        assert (cook["members"], cook["model"]) == (1, "CLUSTERING")
        message_id = admin("queryMsgByKey", "-t", TOPIC, "-k", "W-3")[0]["message_id"]
        (direct,) = admin("queryMsgById", "-i", message_id, "-t", TOPIC, "-g", "cook")
        assert direct["result"] == "CR_SUCCESS"
        assert run("queryMsgById", "-i", message_id, "-t", TOPIC, "-g", "nobody").returncode == 1
        tracks = admin("messageTrack", "-i", message_id, "-t", TOPIC)
        assert "cook" in [row["group"] for row in tracks]
        assert admin("startMonitoring", "-i", "1", "--rounds", "1") == []
    assert "till" in {row["group"] for row in admin("producer", "-b", "broker-a")}
    stats = admin("brokerConsumeStats", "-b", "broker-a")
    assert "cook" in {row["group"] for row in stats}
    assert {row["topic"] for row in admin("statsAll", "-t", TOPIC)} == {TOPIC}


def test_who_would_get_which_queues(admin: Admin) -> None:
    rows = admin("allocateMQ", "-t", TOPIC, "-i", "10.0.0.2,10.0.0.1")
    assert [row["member"] for row in rows] == ["10.0.0.1"] * 2 + ["10.0.0.2"] * 2


def test_messages_of_queues(client: Client, run: Run, admin: Admin) -> None:
    (sent,) = admin("sendMessage", "-t", "lines", "-p", "first", "-c", "a", "-k", "k1 k2")
    where = (sent["broker"], str(sent["queue"]))
    for tag in ("b", "b"):
        admin(
            "sendMessage",
            "-t",
            "lines",
            "-p",
            f"with {tag}",
            "-c",
            tag,
            "-b",
            where[0],
            "-i",
            where[1],
        )
    printed = admin("printMsg", "-t", "lines")
    assert [row["body"] for row in printed] == ["first", "with b", "with b"]
    assert [row["keys"] for row in printed][:1] == ["k1 k2"]
    assert len(admin("printMsg", "-t", "lines", "-s", "b", "-d", "false")) == 2
    queue = ("-a", where[0], "-i", where[1])
    assert admin("printMsgByQueue", "-t", "lines", *queue, "-f", "true") == [
        {"tag": "b", "messages": 2},
        {"tag": "a", "messages": 1},
    ]
    assert admin("printMsg", "-t", "lines", "-e", "1000") == []
    assert (
        len(admin("consumeMessage", "-t", "lines", "-c", "2", "-b", where[0], "-i", where[1])) == 2
    )
    at = ("-t", "lines", "-b", where[0], "-i", where[1], "-o")
    (one,) = admin("queryMsgByOffset", *at, str(sent["offset"]))
    assert one["message_id"] == sent["message_id"]
    assert run("queryMsgByOffset", *at, "99").returncode == 1
    assert run("consumeMessage", "-t", "lines", "-o", "0").returncode == 2
    (unit, *_) = admin("queryCq", "-t", "lines", "-q", where[1], "-i", "0", "-b", where[0])
    assert unit["offset"] == 0
    assert len(admin("queryMsgByUniqueKey", "-t", "lines", "-i", sent["message_id"], "-a")) == 1
    (again,) = admin("queryMsgById", "-i", sent["message_id"], "-t", "lines", "-s", "true")
    assert again["sent as"] != sent["message_id"]
    assert len(admin("printMsg", "-t", "lines")) == 4


def test_sends_are_tried_out(admin: Admin, run: Run) -> None:
    assert len(admin("sendMsgStatus", "-b", "broker-a", "-c", "3")) == 3
    assert len(admin("checkMsgSendRT", "-t", TOPIC, "-a", "4", "-s", "10")) == 4
    rows = admin("clusterRT", "-a", "2", "-c", "DefaultCluster")
    assert [(row["broker"], row["sent"], row["failed"]) for row in rows] == [
        ("broker-a", 2, 0),
        ("broker-b", 2, 0),
    ]


def test_what_operators_take_home(admin: Admin, tmp_path: Path) -> None:
    for verb, name in (("Metadata", "metadata"), ("Configs", "configs"), ("Metrics", "metrics")):
        (row,) = admin(f"export{verb}", "-c", "DefaultCluster", "-f", str(tmp_path / "new"))
        assert row["file"] == str(tmp_path / "new" / f"{name}.json")
    metadata = json.loads((tmp_path / "new/metadata.json").read_text())
    assert metadata["topicConfigTable"][TOPIC]["readQueueNums"] == 2
    assert "till" not in metadata["subscriptionGroupTable"]
    configs = json.loads((tmp_path / "new/configs.json").read_text())
    assert set(configs["brokerConfigs"]) == {"broker-a", "broker-b"}
    assert [path.name for path in (tmp_path / "new").glob("*.tmp")] == []


@pytest.mark.feature("F365")
def test_dead_letters_are_listed_sent_again_and_let_go(
    client: Client, run: Run, admin: Admin
) -> None:
    client.admin.topics.create("bills", queues=1)
    settings = ConsumerSettings(consumer_group="clerk", consume_from_where=FIRST)
    refused, taken = threading.Semaphore(0), []
    again = threading.Semaphore(0)

    def refuse(message: Any) -> None:
        refused.release()
        raise DeadLetter(f"no such account: {message.raw_body.decode()}")

    def take(message: Any) -> None:
        taken.append((message.topic, message.raw_body, message.attempt, message.tag))
        again.release()

    assert admin("deadLetters", "-g", "clerk") == []
    for body in ("one", "two", "three"):
        client.send("bills", body, tag="paid")
    with client.listen("bills", refuse, settings=settings):
        for _ in range(3):
            assert refused.acquire(timeout=60)
    rows = admin("deadLetters", "-g", "clerk")
    assert sorted(row["reason"] for row in rows) == [
        f"no such account: {body}" for body in ("one", "three", "two")
    ]
    assert {row["topic"] for row in rows} == {"bills"}
    first = rows[0]["message_id"]
    assert run("resendDeadLetters", "-g", "clerk", "-i", "nonsense").returncode == 1
    (sent,) = admin("resendDeadLetters", "-g", "clerk", "-i", first)
    assert sent == {"message_id": first, "sent": True, "error": None}
    assert len(admin("deadLetters", "-g", "clerk")) == 3, "listed on"
    assert len(admin("discardDeadLetters", "-g", "clerk", "-i", first)) >= 1
    left = admin("deadLetters", "-g", "clerk")
    assert first not in {row["message_id"] for row in left}
    assert len(left) == 2
    assert len(admin("resendDeadLetters", "-g", "clerk")) == len(left)
    assert admin("deadLetters", "-g", "clerk") == []
    with client.listen("bills", take, settings=settings):
        for _ in range(1 + len(left)):
            assert again.acquire(timeout=60)
    assert {(topic, tag) for topic, _, _, tag in taken} == {("bills", "paid")}
    assert {attempt for _, _, attempt, _ in taken} == {1}, "counted anew"
