"""How the records of a transaction are made of each other; what RocketMQ wrote is in golden."""

import pytest

from kourou.engine.transactions.half_messages import (
    COMMIT,
    HALF_TARGET,
    checked,
    committed,
    given_up,
    half_of,
    operation,
    question,
    read_half,
    still_immune,
)
from kourou.errors import Corrupt
from kourou.model.transaction import ended_by
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import check_record, decode_record, encode_draft, stamp
from kourou.protocol.record.properties import encode_properties

V4 = encode_host(("10.0.0.1", 1))
V6 = encode_host(("2001:db8::1", 1))


def draft(host: bytes = V4, *, v6: bool = False, **properties: str) -> bytes:
    named = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "U", **properties}
    return encode_draft(
        topic=b"orders",
        queue_id=2,
        body=b"body",
        properties=encode_properties(named),
        flag=5,
        sys_flag=4,
        born_timestamp=11,
        born_host=host,
        store_host_v6=v6,
        reconsume_times=0,
    )


TARGET = ("orders", 2)


def stored(raw: bytes, offset: int = 9, position: int = 900) -> bytes:
    record = bytearray(raw)
    host = encode_host(("127.0.0.1", 10911))
    stamp(record, 0, queue_offset=offset, position=position, store_timestamp=22, store_host=host)
    check_record(record, 0, len(record), position)
    return bytes(record)


@pytest.mark.parametrize(("host", "v6"), [(V4, False), (V6, False), (V4, True), (V6, True)])
def test_every_form_is_a_whole_record_whatever_the_hosts(host: bytes, v6: bool) -> None:
    half = read_half(stored(half_of(draft(host, v6=v6), TARGET)))
    for made in (committed(half, 2), checked(half, 1), still_immune(half), given_up(half)):
        record = decode_record(stored(made))
        assert (record.body, record.flag, record.born_timestamp) == (b"body", 5, 11)
        assert record.born_host == decode_record(draft(host, v6=v6), verify=False).born_host
    assert decode_record(stored(committed(half, 2))).sys_flag & 12 == COMMIT
    op = decode_record(stored(operation(3, 1, host)))
    assert (op.body, op.tag) == (b"3", "d")


def test_a_half_message_says_what_it_is() -> None:
    half = read_half(
        stored(
            half_of(draft(TRANSACTION_CHECK_TIMES="4", CHECK_IMMUNITY_TIME_IN_SECONDS="30"), TARGET)
        )
    )
    assert (half.group, half.unique_key, half.identity) == ("p", "U", ("p", "U", 11))
    assert (half.checks, half.immunity_ms, half.was_put_back) == (4, 30_000, True)
    assert half.real_target == ("orders", 2)
    assert (half.first_offset, half.wait) == (9, True)
    plain = read_half(stored(half_of(draft(WAIT="false"), TARGET)))
    assert (plain.checks, plain.immunity_ms, plain.was_put_back) == (0, None, False)
    assert plain.wait is False


def test_without_a_unique_key_a_half_message_has_no_identity() -> None:
    raw = encode_draft(
        topic=b"orders",
        queue_id=0,
        body=b"",
        properties=encode_properties({"TRAN_MSG": "true", "PGROUP": "p"}),
        born_timestamp=1,
        born_host=V4,
    )
    assert read_half(half_of(raw, ("orders", 0))).identity is None


@pytest.mark.parametrize(
    "properties",
    [{}, {"REAL_TOPIC": "a b"}, {"REAL_TOPIC": "t"}, {"REAL_TOPIC": "t", "REAL_QID": "x"}],
)
def test_one_that_does_not_say_where_it_belongs_is_damaged(properties: dict[str, str]) -> None:
    raw = encode_draft(
        topic=HALF_TARGET[0].encode(),
        queue_id=0,
        body=b"",
        properties=encode_properties(properties),
        born_timestamp=1,
        born_host=V4,
    )
    with pytest.raises(Corrupt):
        _ = read_half(raw).real_target


def test_the_question_is_a_whole_record_of_the_real_topic() -> None:
    half = read_half(stored(half_of(draft(), TARGET)))
    again = checked(half, 3)
    body = question(again, 40, 4000, 77, V4)
    record = decode_record(body)
    assert (record.topic, record.queue_id, record.offset, record.position) == (
        "orders",
        2,
        40,
        4000,
    )
    assert record.store_timestamp == 77
    assert record.properties["TRANSACTION_CHECK_TIMES"] == "3"
    check_record(body, 0, len(body), 4000)


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"0", [0]),
        (b"17", [17]),
        (b"1,2,30", [1, 2, 30]),
        (b"1,2,", [1, 2]),
        (b"", []),
        (b"-1", []),
        (b"x,5", [5]),
        (b"9" * 40, []),
    ],
)
def test_what_an_op_record_ends(body: bytes, offsets: list[int]) -> None:
    assert ended_by(body) == offsets
