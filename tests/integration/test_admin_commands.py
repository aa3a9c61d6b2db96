"""`kourou admin` against a name server and a broker, by the letters of mqadmin.

All three live in this process; that a command is found, parsed and ended as a process is proved by
test_command_line.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kourou.client.settings.client_settings import ConsumerSettings
from kourou.errors import NoPermission, Unavailable
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou.testing.cluster import Cluster

Admin = Callable[..., list[dict[str, Any]]]
Run = Callable[..., Any]
TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("admin")) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.address, group="till") as opened:
        opened.admin.topics.create(TOPIC, queues=4)
        yield opened


@pytest.fixture
def run(cluster: Cluster, kourou_admin: Run) -> Run:
    return partial(kourou_admin, cluster.address)


@pytest.fixture
def admin(client: Client, run: Run) -> Admin:
    def ask(*arguments: str) -> list[dict[str, Any]]:
        done = run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


@pytest.mark.feature("F045", "F362")
def test_topics_are_created_changed_and_deleted(run: Run, admin: Admin) -> None:
    created = admin("updateTopic", "-t", "small", "-w", "4", "-r", "4", "-c", "DefaultCluster")
    assert created == [
        {"broker": "broker-a", "topic": "small", "write": 4, "read": 4, "perm": 6, "order": False}
    ]
    (shrunk,) = admin("updateTopic", "-t", "small", "-w", "2", "-r", "4", "-p", "4")
    assert (shrunk["write"], shrunk["read"], shrunk["perm"]) == (2, 4, 4)
    (route,) = admin("topicRoute", "-t", "small")
    assert (route["write"], route["read"], route["perm"]) == (2, 4, 4)
    assert {"topic": "small"} in admin("topicList")
    assert run("deleteTopic", "-t", "small").returncode == 0
    assert {"topic": "small"} not in admin("topicList")


@pytest.mark.feature("F048")
@pytest.mark.parametrize("wrong", [("-w", "4", "-r", "2"), ("-p", "3")])
def test_a_topic_that_would_lose_messages_is_refused(
    run: Run, client: Client, admin: Admin, wrong: tuple[str, ...]
) -> None:
    refused = run("updateTopic", "-t", "odd", *wrong)
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert {"topic": "odd"} not in admin("topicList")


@pytest.mark.feature("F364", "F267")
def test_a_group_is_watched_and_moved_by_time(run: Run, client: Client, admin: Admin) -> None:
    for number in range(20):
        client.send(TOPIC, f"order {number}", keys=f"A-{number}", tag="paid")
    settings = ConsumerSettings(
        consumer_group="cook", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with client.subscribe(TOPIC, settings=settings) as orders:
        seen = [next(iter(orders)).body for _ in range(20)]
        assert len(set(seen)) == 20
        members = admin("consumerConnection", "-g", "cook")
        assert [member["client"] for member in members] == [client.client_id]
    progress = admin("consumerProgress", "-g", "cook", "-t", TOPIC)
    assert sum(row["end"] for row in progress) == 20
    assert len(progress) == 4
    moved = admin("resetOffsetByTime", "-g", "cook", "-t", TOPIC, "-s", "0")
    assert [row["offset"] for row in moved] == [0, 0, 0, 0]
    assert sum(row["lag"] for row in admin("consumerProgress", "-g", "cook")) == 20
    assert run("updateSubGroup", "-g", "waiter").returncode == 0
    cloned = admin("cloneGroupOffset", "-s", "cook", "-d", "waiter", "-t", TOPIC)
    assert sum(row["lag"] for row in cloned) == 20
    skipped = admin("skipAccumulatedMessage", "-g", "cook", "-t", TOPIC)
    assert sum(row["offset"] for row in skipped) == 20
    status = admin("topicStatus", "-t", TOPIC)
    assert sum(row["max"] for row in status) == 20


def test_messages_are_found_by_key_and_by_both_ids(client: Client, admin: Admin) -> None:
    sent = client.send(TOPIC, "the one", keys="unique-key-7")
    (by_key,) = admin("queryMsgByKey", "-t", TOPIC, "-k", "unique-key-7")
    (by_unique,) = admin("queryMsgById", "-t", TOPIC, "-i", sent.message_id)
    (by_offset,) = admin("queryMsgById", "-i", sent.offset_message_id)
    assert by_key == by_unique == by_offset
    assert by_key["body"] == "the one"
    assert admin("queryMsgByKey", "-t", TOPIC, "-k", "unique-key-7", "--end", "1000") == []


@pytest.mark.feature("F363")
def test_the_producers_of_a_group_are_counted(
    cluster: Cluster, client: Client, admin: Admin
) -> None:
    with (
        Client(cluster.address, group="press") as one,
        Client(cluster.address, group="press") as two,
    ):
        for sender in (one, two):
            sender.send(TOPIC, "hello")
        producers = admin("producerConnection", "-g", "press")
        assert {row["client"] for row in producers} == {one.client_id, two.client_id}


def test_groups_come_and_go(run: Run, admin: Admin) -> None:
    assert run("updateSubGroup", "-g", "night-shift").returncode == 0
    assert "night-shift" in [row["group"] for row in admin("subGroupList")]
    assert run("deleteSubGroup", "-g", "night-shift", "-r").returncode == 0
    assert "night-shift" not in [row["group"] for row in admin("subGroupList")]


@pytest.mark.feature("F358")
def test_settings_change_at_run_time_if_they_may(run: Run, admin: Admin) -> None:
    (row,) = admin("clusterList")
    assert row["broker"] == "broker-a"
    before = {one["key"]: one["value"] for one in admin("getBrokerConfig", "-b", "broker-a")}
    assert before["defaultQueryMaxNum"] == "32"
    by_address = ("updateBrokerConfig", "-b", row["address"])
    assert admin(*by_address, "-k", "defaultQueryMaxNum", "-v", "24") == [
        {"key": "defaultQueryMaxNum", "value": "24"}
    ]
    refused = run(*by_address, "-k", "storePathRootDir", "-v", "/tmp")
    assert refused.returncode != 0
    assert "storePathRootDir" in refused.stderr
    assert run("getBrokerConfig", "-b", "nobody").returncode == 2
    assert admin("brokerStatus", "-b", "broker-a")


@pytest.mark.feature("F359")
def test_a_broker_without_write_permission_is_not_sent_to(
    cluster: Cluster, run: Run, client: Client, admin: Admin
) -> None:
    client.send(TOPIC, "before")
    assert run("wipeWritePerm", "-b", "broker-a").returncode == 0
    (route,) = admin("topicRoute", "-t", TOPIC)
    assert route["perm"] == 4
    with Client(cluster.address, group="late") as late, pytest.raises((NoPermission, Unavailable)):
        late.send(TOPIC, "meanwhile")
    assert run("addWritePerm", "-b", "broker-a").returncode == 0
    with Client(cluster.address, group="later") as later:
        assert later.send(TOPIC, "after").status == "SEND_OK"
