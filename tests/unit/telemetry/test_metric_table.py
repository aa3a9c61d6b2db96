"""The table of metrics keeps to the rules that scrapers and dashboards rely on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK
from kourou.errors import Code
from kourou.model.subscription import GroupConfig
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.lists_body import LockBatch, encode_lock_batch
from kourou.protocol.messages.filter_server import PutFilter
from kourou.protocol.messages.groups import HeartBeat, LockBatchMq, UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import PullFlag, PullMessage, UpdateConsumerOffset
from kourou.protocol.messages.sends import (
    ConsumerSendMsgBack,
    EndTransaction,
    SendMessage,
    SendResponse,
)
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.request import Request
from kourou.service.lifecycle import Service as Life
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind
from kourou.telemetry.otlp_receiver import OtlpReceiver
from kourou.transport.zmq_client import ZmqConnection
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings


def test_names_and_labels_are_well_formed() -> None:
    for spec in METRICS.values():
        assert re.fullmatch(r"(rocketmq|kourou)_[a-z_]+", spec.name)
        assert all(re.fullmatch(r"[a-z_]+", label) for label in spec.labels)
        assert len(set(spec.labels)) == len(spec.labels)
        assert spec.about


def test_no_metric_repeats_a_label_of_its_service() -> None:
    for spec in METRICS.values():
        for service in spec.services:
            assert not set(BASE_LABELS[service]) & set(spec.labels), spec.name


def test_every_metric_is_exported_by_a_service() -> None:
    assert set(BASE_LABELS) == set(ServiceKind)
    assert [spec.name for spec in METRICS.values() if not spec.services] == []


# -- services --------------------------------------------------------------------------------------


PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"


TRACED = "only while the service exports traces"
"""Of the conditions under which something is shown, the one that is tried here."""


class Shown(NamedTuple):
    """A family on a page: its type, and the label names of its samples (None without samples)."""

    kind: str
    labels: frozenset[str] | None


def documented(service: str) -> dict[str, tuple[str, str, frozenset[str]]]:
    """The rows of the page for a service: name -> (type, sentence, labels)."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| \w* \| (.*?) \| (.*?) \| (.*?) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {
        name: (kind, about, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, services, about in rows
        if service in services.split(", ")
    }


async def scraped(admin: str) -> dict[str, Shown]:
    async with aiohttp.ClientSession() as session, session.get(f"{admin}/metrics") as answer:
        assert answer.status == 200
        text = await answer.text()
    found = {}
    for family in text_string_to_metric_families(text):
        # The parser takes _total from a counter's name.
        name = f"{family.name}_total" if family.type == "counter" else family.name
        # A histogram's buckets say what they hold by one label more.
        kinds = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(kinds) <= 1, f"{name} has samples with different labels"
        found[name] = Shown(family.type, kinds.pop() if kinds else None)
    return found


@asynccontextmanager
async def alive(service: Life) -> AsyncIterator[dict[str, str]]:
    def fail(error: BaseException) -> None:
        raise AssertionError from error

    await service.recover(fail)
    try:
        yield dict(await service.serve())
        await service.drain()
    finally:
        await service.stop()


BROKER_NAME = "broker-a"


@asynccontextmanager
async def traffic(address: str) -> AsyncIterator[None]:
    """Everything once: sent in each way, delivered, not compared, sent back, refused. Its client
    stays connected meanwhile."""
    wire = ZmqConnection(address)
    queue: dict[str, Any] = {"consumer_group": "g", "topic": "orders", "queue_id": 0}

    async def ask(request: Request, body: bytes = b"") -> int:
        return (await wire.request(request, body=(body,), timeout_ms=20_000)).code

    sent = {"producer_group": "p", "queue_id": 0, "born_timestamp": 1, "default_topic": "TBW102"}
    create = SendMessage(topic="orders", default_topic_queue_nums=1, properties="a\x01x", **sent)
    pull = PullMessage(
        **queue,
        queue_offset=0,
        max_msg_nums=1,
        subscription="*",
        sys_flag=PullFlag.SUBSCRIPTION,
    )
    put = UpdateAndCreateSubscriptionGroup()
    assert await ask(put, encode_group_config(GroupConfig("g"))) == Code.SUCCESS
    placed = (await wire.request(create, body=(b"1",), timeout_ms=20_000)).header
    assert isinstance(placed, SendResponse)
    while (code := await ask(pull)) != Code.SUCCESS:
        assert code == Code.PULL_NOT_FOUND, "it is not in its queue yet"
    sifted = msgspec.structs.replace(pull, subscription="a > 1", expression_type="SQL92")
    assert await ask(sifted) == Code.PULL_RETRY_IMMEDIATELY
    assert await ask(UpdateConsumerOffset(**queue, commit_offset=1)) == Code.SUCCESS
    assert await ask(SendMessage(topic="%DLQ%g", **sent), b"2") == Code.TOPIC_NOT_EXIST
    beat = HeartbeatBody("c", ("p",), (ConsumerData("g"),))
    assert await ask(HeartBeat(), encode_heartbeat(beat)) == Code.SUCCESS
    delayed = SendMessage(topic="orders", properties="DELAY\x011", **sent)
    assert await ask(delayed, b"3") == Code.SUCCESS
    half = SendMessage(topic="orders", properties="TRAN_MSG\x01true\x02PGROUP\x01p", **sent)
    for outcome in (COMMIT, ROLLBACK):
        reply = await wire.request(half, body=(b"4",), timeout_ms=20_000)
        assert isinstance(reply.header, SendResponse)
        end = EndTransaction(
            producer_group="p",
            tran_state_table_offset=reply.header.queue_offset,
            commit_log_offset=decode_offset_id(reply.header.msg_id)[1],
            commit_or_rollback=outcome,
            msg_id="",
        )
        assert await ask(end) == Code.SUCCESS
    for level in (0, -1):
        position = decode_offset_id(placed.msg_id)[1]
        back = ConsumerSendMsgBack(offset=position, group="g", delay_level=level)
        assert await ask(back) == Code.SUCCESS
    source = b"def match(message, context):\n    return True\n"
    upload = PutFilter(consumer_group="g", name="all", sha256=sha256(source).hexdigest())
    assert await ask(upload, source) == Code.SUCCESS
    lock = LockBatch("g", "c", (MessageQueue("orders", BROKER_NAME, 0),))
    assert await ask(LockBatchMq(), encode_lock_batch(lock)) == Code.SUCCESS
    yield
    wire.close()


def check(service: ServiceKind, found: dict[str, Shown], *, traced: bool) -> None:
    listed = {
        name: row
        for name, row in documented(service.value).items()
        if not (when := METRICS[name].when) or (traced and when == TRACED)
    }
    assert set(found) == set(listed)
    for name, shown in found.items():
        kind, _, labels = listed[name]
        assert shown.kind == kind, name
        if shown.labels is not None:
            assert shown.labels == labels | set(BASE_LABELS[service]), name


@pytest.mark.parametrize("traced", [False, True])
async def test_the_page_is_what_services_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced: bool
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    namesrv = NamesrvSettings(listen_port=0, kv_config_path=tmp_path / "kvConfig.json")
    with OtlpReceiver() as collector:
        async with alive(NamesrvService(namesrv)) as names:
            broker = BrokerSettings(
                store_root=tmp_path / "store",
                broker_name=BROKER_NAME,
                listen_port=0,
                segment_size_bytes=1 << 20,
                namesrv_addr=names["zmq"].removeprefix("tcp://"),
                trace_otlp_endpoint=collector.endpoint if traced else None,
            )
            async with alive(BrokerService(broker)) as brokers:
                async with traffic(brokers["zmq"].removeprefix("tcp://")):
                    shown = await scraped(brokers["admin"])
                check(ServiceKind.BROKER, shown, traced=traced)
                check(ServiceKind.NAMESRV, await scraped(names["admin"]), traced=traced)
    without = {name for name, one in shown.items() if one.labels is None}
    lags = {"kourou_replication_lag_bytes", "kourou_replication_lag_seconds"}
    rare = {name for name in shown if "retention" in name}
    assert without == rare - {"kourou_retention_unread_deleted_total"} | lags
