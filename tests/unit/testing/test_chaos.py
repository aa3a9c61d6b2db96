"""Each fault is met by a client as in production, and taken back."""

from __future__ import annotations

import threading

import pytest

from kourou import ProducerSettings
from kourou.errors import BadRequest, DiskFull, TimedOut, Unavailable, UnknownOutcome
from kourou.protocol.messages.pulls import GetMaxOffset

SYNC = {"flushDiskType": "SYNC_FLUSH"}


@pytest.fixture
def once(kourou_broker):
    """An open client whose sends are tried once."""
    settings = ProducerSettings(producer_group="once", retry_times_when_send_failed=0)
    with kourou_broker.client(producer=settings) as client:
        yield client


def test_a_lost_answer_with_its_connection_leaves_the_sender_in_doubt(
    kourou_topic, once, kourou_chaos, kourou_sent
):
    fault = kourou_chaos.drop_answers("send", cut=True)
    with pytest.raises(UnknownOutcome):
        once.send(kourou_topic, b"stored all the same")
    assert fault.met == 1
    assert kourou_sent.one(kourou_topic).body == b"stored all the same"
    once.send(kourou_topic, b"the fault struck once")
    kourou_sent.all(kourou_topic, 2)


def test_a_lost_request_with_its_connection_leaves_nothing(
    kourou_topic, once, kourou_chaos, kourou_sent
):
    kourou_chaos.drop_requests("send", cut=True)
    with pytest.raises(UnknownOutcome):
        once.send(kourou_topic, b"x")
    kourou_sent.none(kourou_topic)


def test_a_silent_loss_is_learnt_by_the_deadline_which_need_not_be_waited_for(
    kourou_topic, once, kourou_chaos, kourou_clock, kourou_sent
):
    once.send(kourou_topic, b"the route is known")
    fault = kourou_chaos.drop_requests("send")
    outcome, notified = [], threading.Event()

    def heard(result) -> None:
        outcome.append(result)
        notified.set()

    once.send_async(kourou_topic, b"lost", heard)
    kourou_clock.advance(seconds=11)
    notified.wait()
    assert isinstance(outcome[0], TimedOut)
    assert fault.met == 1
    kourou_sent.one(kourou_topic)


def test_late_requests_and_answers_come_when_the_clock_says_so(
    kourou_topic, once, kourou_chaos, kourou_clock, kourou_sent
):
    once.send(kourou_topic, b"the route is known")
    kourou_chaos.delay_requests("send", seconds=3)
    kourou_chaos.delay_answers("send", seconds=4)
    notified = threading.Event()
    outcome = []
    before_ms = kourou_clock.now_ms
    once.send_async(kourou_topic, b"late", lambda result: (outcome.append(result), notified.set()))
    kourou_clock.advance(seconds=8)
    notified.wait()
    assert outcome[0].queue.topic == kourou_topic
    late = kourou_sent.one(kourou_topic, body=b"late")
    assert late.store_timestamp - before_ms >= 3_000


def test_cut_connections_come_back(kourou_topic, kourou_client, kourou_chaos):
    kourou_client.send(kourou_topic, b"1")
    assert kourou_chaos.cut_connections() > 0
    kourou_client.send(kourou_topic, b"2")


def test_a_type_of_request_can_be_meant(kourou_topic, kourou_client, kourou_chaos):
    fault = kourou_chaos.drop_answers(GetMaxOffset, cut=True)
    puller = kourou_client.pull_consumer("g")
    queue = puller.queues(kourou_topic)[0]
    with pytest.raises(UnknownOutcome):
        puller.max_offset(queue)
    assert puller.max_offset(queue) == 0
    assert fault.met == 1


def test_a_killed_broker_comes_back_with_all_acknowledged_messages(
    kourou_topic, once, kourou_chaos, kourou_broker, kourou_sent
):
    once.send(kourou_topic, b"1")
    kourou_chaos.kill()
    assert not kourou_broker.is_up("broker-a")
    with pytest.raises((Unavailable, UnknownOutcome)):
        once.send(kourou_topic, b"2", timeout_ms=100)
    with pytest.raises(Unavailable, match="broker-a is down"):
        kourou_sent.none(kourou_topic)
    kourou_chaos.restart()
    once.send(kourou_topic, b"3")
    assert [one.body for one in kourou_sent.all(kourou_topic)] == [b"1", b"3"]


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_progress_of_a_group_survives_a_kill(kourou_cluster, storage):
    cluster = kourou_cluster(1, storage=storage)
    topic = cluster.create_topic()
    seen = []
    with cluster.client("g") as client:
        client.send(topic, b"1")
        with client.listen(topic, lambda message: seen.append(message.body)):
            cluster.sent().consumed(topic, "g")
        cluster.clock.advance(seconds=6)  # the broker records commits every 5 s
        cluster.chaos.kill()
        cluster.chaos.restart()
        client.send(topic, b"2")
        with client.listen(topic, lambda message: seen.append(message.body)):
            cluster.sent().consumed(topic, "g")
    assert seen == [b"1", b"2"]


def test_what_was_flushed_survives_a_power_loss(kourou_cluster):
    cluster = kourou_cluster(1, settings=SYNC)
    topic, sent = cluster.create_topic(), cluster.sent()
    with cluster.client() as client:
        client.send(topic, b"flushed before it was answered")
        cluster.chaos.power_loss()
        cluster.chaos.restart()
        sent.one(topic)
        client.send(topic, b"and goes on")
    sent.all(topic, 2)


def test_a_full_disk_refuses_messages_until_it_is_repaired(
    kourou_topic, once, kourou_chaos, kourou_sent
):
    kourou_chaos.fill_disk()
    with pytest.raises(DiskFull):
        once.send(kourou_topic, b"1")
    kourou_chaos.repair_disk()
    once.send(kourou_topic, b"2")
    assert kourou_sent.one(kourou_topic).body == b"2"


@pytest.mark.feature("F176")
def test_a_retried_send_is_stored_once_after_a_full_disk_too(kourou_cluster):
    """The key index rested meanwhile, and what the broker recorded itself put it behind."""
    cluster = kourou_cluster(1)
    topic, sent, chaos = cluster.create_topic(), cluster.sent(), cluster.chaos
    with cluster.client("g") as client:
        client.send(topic, b"1")
        chaos.fill_disk()
        with client.listen(topic, lambda message: None):
            sent.consumed(topic, "g")
        cluster.clock.advance(seconds=6)  # the broker records commits every 5 s
        chaos.repair_disk()
        chaos.drop_answers("send", cut=True)
        client.send(topic, b"2")
    sent.one(topic, body=b"2")


def test_a_broker_whose_disk_fails_ends_and_what_it_promised_is_there(kourou_cluster):
    cluster = kourou_cluster(1, settings=SYNC)
    topic, sent, chaos = cluster.create_topic(), cluster.sent(), cluster.chaos
    settings = ProducerSettings(producer_group="once", retry_times_when_send_failed=0)
    with cluster.client(producer=settings) as client:
        client.send(topic, b"promised")
        chaos.break_disk()
        with pytest.raises(UnknownOutcome):
            client.send(topic, b"in doubt")
        chaos.wait_for_end()
        assert not cluster.is_up("broker-a")
        with pytest.raises(Unavailable, match=r"broker-a is down: .*Input/output error"):
            sent.none(topic)
        chaos.repair_disk()
        chaos.restart()
        assert sent.eventually(topic)[0].body == b"promised"


def test_one_of_several_is_meant_by_its_name(kourou_cluster):
    cluster = kourou_cluster(2)
    chaos = cluster.chaos
    with pytest.raises(BadRequest, match="several brokers"):
        chaos.kill()
    with pytest.raises(BadRequest, match="known: broker-a, broker-b"):
        chaos.kill("broker-x")
    chaos.kill("broker-b")
    assert [cluster.is_up(name) for name in cluster.brokers] == [True, False]


def test_the_machines_own_disk_is_not_broken(kourou_cluster):
    cluster = kourou_cluster(1, storage="disk")
    for order in (cluster.chaos.break_disk, cluster.chaos.fill_disk, cluster.chaos.power_loss):
        with pytest.raises(BadRequest, match="no test breaks"):
            order()
    assert cluster.is_up("broker-a")
