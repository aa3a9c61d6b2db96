"""Transactions in an Engine, as RocketMQ's client makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kourou.events.control_events import Cause, TopicPut
from kourou.model.message import SysFlag
from kourou.model.names import OP_TOPIC
from kourou.model.topic import TopicConfig
from kourou.model.transaction import BatchMark
from kourou.protocol.bodies.heartbeat_body import HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.sends import EndTransaction, SendMessage, SendRecords, Target
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine, header_of

GROUP = "PGT"
TOPIC = "orders"
QUEUES = 4

Place = tuple[int, int]
"""Queue offset and log position of a half message."""


def transacting(**options: object) -> Engine:
    """A broker with a topic `orders` of four queues; `options` are those of Engine."""
    engine = Engine(**options)  # type: ignore[arg-type]  # passed on unchanged
    put_topic(engine)
    engine.flush()
    return engine


def put_topic(engine: Engine) -> None:
    """Create the topic."""
    topic = TopicPut(TopicConfig(TOPIC, QUEUES, QUEUES))
    record(engine, topic)


def record(engine: Engine, event: TopicPut | object) -> None:
    """Record a control event."""
    parts = engine.core.parts
    parts.recorder.record([event], Cause("test", "test"), engine.wall_ms)  # type: ignore[list-item]  # any event
    engine.perform(parts.appends.take_done())


def half(
    engine: Engine,
    body: bytes = b"pay",
    *,
    key: str = "U1",
    queue_id: int = 3,
    group: str = GROUP,
    properties: Mapping[str, str] | None = None,
    born_ms: int | None = None,
) -> Place:
    """Send a half message."""
    request = half_send(
        engine, key=key, queue_id=queue_id, group=group, properties=properties, born_ms=born_ms
    )
    header = header_of(engine.ask(request, body))
    assert header.queue_id == queue_id
    return header.queue_offset, decode_offset_id(header.msg_id)[1]


def half_send(
    engine: Engine,
    *,
    key: str,
    queue_id: int = 3,
    group: str = GROUP,
    properties: Mapping[str, str] | None = None,
    born_ms: int | None = None,
) -> SendMessage:
    """The request that sends a half message."""
    named = {
        "TRAN_MSG": "true",
        "PGROUP": group,
        "UNIQ_KEY": key,
        "WAIT": "true",
        **(properties or {}),
    }
    return SendMessage(
        producer_group=group,
        topic=TOPIC,
        queue_id=queue_id,
        born_timestamp=engine.wall_ms if born_ms is None else born_ms,
        sys_flag=int(SysFlag.TRANSACTION_PREPARED),
        flag=7,
        properties=encode_properties(named).decode(),
    )


def batch_send(
    bodies: Sequence[str],
    mark: BatchMark,
    *,
    born_ms: int,
    queue_id: int = 0,
    first: bytes = b"",
    last: bytes = b"",
) -> tuple[SendRecords, bytes]:
    """The frame with which a task writes half messages of a batch, as the sink does.

    `first` and `last` are further properties, encoded, before and after those of the sink.
    """
    drafts = []
    for body in bodies:
        named = {
            "UNIQ_KEY": f"{mark.query}.{mark.batch}.{mark.partition}.{mark.attempt}.{body}",
            "TRAN_MSG": "true",
            "PGROUP": "sink",
            "KOUROU_BATCH": mark.text,
            "CLUSTER": "DefaultCluster",
        }
        drafts.append(
            encode_draft(
                topic=TOPIC.encode(),
                queue_id=queue_id,
                body=body.encode(),
                properties=first + encode_properties(named) + b"\x02" + last,
                born_timestamp=born_ms,
                born_host=encode_host(("127.0.0.1", 40_001)),
            )
        )
    request = SendRecords(
        targets=[Target(TOPIC, queue_id)],
        sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
        producer_group="sink",
    )
    return request, b"".join(drafts)


def end(place: Place, how: int, *, group: str = GROUP, from_check: bool = False) -> EndTransaction:
    """The request that resolves a half message."""
    return EndTransaction(
        producer_group=group,
        tran_state_table_offset=place[0],
        commit_log_offset=place[1],
        commit_or_rollback=how,
        from_transaction_check=from_check,
        msg_id="U1",
    )


def resolved(engine: Engine, place: Place, how: int) -> int:
    """Resolve a half message; returns the code of the reply."""
    return engine.ask(end(place, how)).code


def join(engine: Engine, peer: int, group: str = GROUP) -> None:
    """Connect a producer of a group."""
    body = encode_heartbeat(HeartbeatBody(f"member-{peer}", (group,), ()))
    engine.ask(HeartBeat(), body, peer=peer)


def ops(engine: Engine) -> list[bytes]:
    """The bodies of all op records."""
    return [message.body for message in engine.stored(OP_TOPIC)]


def visible(engine: Engine) -> list[bytes]:
    """The bodies that consumers can see, queue by queue."""
    return [
        message.body for queue_id in range(QUEUES) for message in engine.stored(TOPIC, queue_id)
    ]


def started_again(engine: Engine, cut: int | None = None, **options: object) -> Engine:
    """The broker after a crash that kept the log below position `cut`; None keeps all of it."""
    left = engine.store.cut(engine.store.end if cut is None else cut)
    return Engine(left=left, now_ms=50, wall_ms=engine.wall_ms, **options)  # type: ignore[arg-type]  # as above
