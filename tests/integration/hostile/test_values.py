"""Numbers beyond all bounds and properties that are not what they seem: an error, or no effect."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kourou.errors import Code
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.wire.remoting import RemotingCommand
from kourou_rigs.attacked import Attacked

EDGES = (-1, -(2**31), 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 2**63, 10**30)
SEND_LETTERS = {
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "reconsumeTimes": "j",
    "maxReconsumeTimes": "l", "defaultTopicQueueNums": "d",
}  # fmt: skip
LONGS = ("g",)


def problem(reply: RemotingCommand) -> str:
    return f"{reply.code}: {reply.remark}"


@pytest.mark.fault
@pytest.mark.parametrize("letter", SEND_LETTERS.values(), ids=SEND_LETTERS)
async def test_a_send_with_an_impossible_number_stores_one_message_or_none(
    attacked: Attacked, letter: str
) -> None:
    await attacked.send()
    for number in EDGES:
        before = attacked.core.parts.appends.end
        reply = await attacked.send(b"odd", **{letter: number})
        top = 2 ** (63 if letter in LONGS else 31)
        assert reply.code != Code.SUCCESS or -top <= number < top
        assert (reply.code == Code.SUCCESS) == (attacked.core.parts.appends.end > before), problem(
            reply
        )
    await attacked.serves()


async def committed(broker: Attacked) -> int:
    """The offset of group `g`; -1 for none."""
    reply = await broker.say(14, consumerGroup="g", topic="orders", queueId=0)
    return int((reply.ext_fields or {}).get("offset", "-1"))


OFFSETS = {
    "commit": (15, {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": None}),
    "commit, queue": (
        15,
        {"consumerGroup": "g", "topic": "orders", "queueId": None, "commitOffset": 0},
    ),
    "reset": (
        222,
        {"topic": "orders", "group": "g", "timestamp": None, "isForce": "true", "offset": -1},
    ),
    "reset to an offset": (
        222,
        {"topic": "orders", "group": "g", "timestamp": 0, "isForce": "true", "offset": None},
    ),
    "by time": (29, {"topic": "orders", "queueId": 0, "timestamp": None}),
    "minimum": (31, {"topic": "orders", "queueId": None}),
    "maximum": (30, {"topic": "orders", "queueId": None}),
    "view": (33, {"offset": None}),
    "units": (
        321,
        {"topic": "orders", "queueId": 0, "index": None, "count": 10, "consumerGroup": "g"},
    ),
    "units, count": (
        321,
        {"topic": "orders", "queueId": 0, "index": 0, "count": None, "consumerGroup": "g"},
    ),
    "query": (
        12,
        {"topic": "orders", "key": "k", "maxNum": None, "beginTimestamp": 0, "endTimestamp": 1},
    ),
    "send back": (
        36,
        {"group": "g", "offset": None, "delayLevel": 0, "originMsgId": "x", "originTopic": "t"},
    ),
    "send back, delay": (36, {"group": "g", "offset": 0, "delayLevel": None}),
    "end of a transaction": (
        37,
        {
            "producerGroup": "g", "tranStateTableOffset": None, "commitLogOffset": None,
            "commitOrRollback": 8, "fromTransactionCheck": "false", "msgId": "x",
        },
    ),
    "queues of a topic": (
        17,
        {
            "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": None,
            "writeQueueNums": None, "perm": 6, "topicFilterType": "SINGLE_TAG",
        },
    ),
    "permission of a topic": (
        17,
        {
            "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
            "perm": None, "topicFilterType": "SINGLE_TAG",
        },
    ),
}  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize(("code", "fields"), OFFSETS.values(), ids=OFFSETS)
async def test_an_impossible_number_changes_nothing(
    attacked: Attacked, code: int, fields: dict[str, object]
) -> None:
    for number in range(3):
        assert (await attacked.send(b"%d" % number, i="KEYS\x01k\x02")).code == Code.SUCCESS
    topic = attacked.view.control.topics.table["orders"]
    before = await committed(attacked)
    for number in EDGES:
        given = {name: number if value is None else value for name, value in fields.items()}
        reply = await attacked.say(code, **given)
        assert reply.code != Code.SUCCESS or code != 17, problem(reply)
        after = await committed(attacked)
        assert after == before or (reply.code == Code.SUCCESS and 0 <= after < 2**63)
        before = after
    assert attacked.view.control.topics.table["orders"] == topic
    assert attacked.stored() == 3
    await attacked.serves()


PULL_NUMBERS = (
    "queueOffset", "maxMsgNums", "queueId", "commitOffset", "suspendTimeoutMillis", "subVersion",
    "sysFlag",
)  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("field", PULL_NUMBERS)
async def test_a_pull_with_an_impossible_number_is_refused_or_right(
    attacked: Attacked, field: str
) -> None:
    await attacked.send(b"one")
    given = {
        "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
        "subscription": "*",
    }  # fmt: skip
    for number in EDGES:
        reply = await attacked.say(11, **{**given, field: number})
        if reply.code == Code.SUCCESS:
            assert decode_record(bytes(reply.body)).body == b"one"
            assert (reply.ext_fields or {})["nextBeginOffset"] == "1"
    await attacked.serves()


# -- properties -----------------------------------------------------------------------------------

PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["", "\x01", "\x02", "KEYS", "TAGS\x01", "DELAY\x01", "DELAY\x01-1", "DELAY\x01x",
             "DELAY\x0199999999999", "DELAY\x012", "TRAN_MSG\x01true", "TRAN_MSG\x01TRUE",
             "PGROUP\x01../x", "REAL_TOPIC\x01other", "REAL_QID\x01-7", "RETRY_TOPIC\x01other",
             "RECONSUME_TIME\x01-1", "MAX_RECONSUME_TIMES\x01x", "UNIQ_KEY\x01", "CLUSTER\x01x",
             "__CRC32#\x010000000000", "WAIT\x01false", "INNER_NUM\x0199999", "a\x01" + "v" * 9_000]
        ),
        st.text(max_size=20),
    ),
    max_size=6,
)  # fmt: skip


OF_THE_BROKER = ("DELAY", "REAL_TOPIC", "REAL_QID", "CLUSTER", "WAIT", "__CRC32#")


@pytest.mark.fault
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=PIECES, end=st.sampled_from(["", "\x02"]))
async def test_any_properties_are_stored_as_they_are_read_or_refused(
    attacked: Attacked, pieces: list[str], end: str
) -> None:
    text = "\x02".join(pieces) + end
    before = attacked.core.parts.appends.end
    other = attacked.stored("other")
    reply = await attacked.send(b"body", i=text)
    if reply.code != Code.SUCCESS:
        assert attacked.core.parts.appends.end == before, problem(reply)
        return
    position = int((reply.ext_fields or {})["msgId"][16:], 16)
    viewed = await attacked.say(33, offset=position)
    record = decode_record(bytes(viewed.body))
    assert record.body == b"body"
    meant = dict(piece.split("\x01", 1) for piece in text.split("\x02") if piece.find("\x01") > 0)
    for name, value in meant.items():
        if value and name in record.properties and name not in OF_THE_BROKER:
            assert record.properties[name] == value, name
    assert attacked.stored("other") == other, "only the broker decides where a message goes"


@pytest.mark.fault
async def test_properties_that_are_too_long_are_refused(attacked: Attacked) -> None:
    for size in (32_768, 60_000, 200_000):
        reply = await attacked.send(i="K\x01" + "v" * size)
        assert reply.code == Code.MESSAGE_ILLEGAL, problem(reply)
    assert attacked.stored() == 0
    await attacked.serves()
