"""Who consumed a message, by RocketMQ's table of answers."""

import pytest

from kourou.client.admin.message_tracks import MessageTrack, TrackKind, track
from kourou.errors import Code, GroupNotFound, KourouError, Rejected
from kourou.model.subscription import SQL92, ConsumeType, MessageModel, Subscription
from kourou.protocol.bodies.lists_body import ConsumerConnection
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper

AWAY = GroupNotFound("nobody is here", code=Code.CONSUMER_NOT_ONLINE)


def connected(tags: str = "", **fields: object) -> ConsumerConnection:
    wanted = Subscription("T", tags or "*", tags=frozenset(filter(None, tags.split("|"))))
    return ConsumerConnection(subscriptions={"T": wanted}, **fields)


def at(offset: int) -> OffsetWrapper:
    return OffsetWrapper(broker_offset=10, consumer_offset=offset)


@pytest.mark.feature("F265")
@pytest.mark.parametrize(
    ("connection", "progress", "kind", "consumed"),
    [
        (connected(), at(6), TrackKind.CONSUMED, True),
        (connected(), at(5), TrackKind.NOT_CONSUME_YET, False),
        (connected("a|b"), at(6), TrackKind.CONSUMED, True),
        (connected("b"), at(6), TrackKind.CONSUMED_BUT_FILTERED, True),
        (connected("b"), at(5), TrackKind.NOT_CONSUME_YET, False),
        (connected("*"), at(6), TrackKind.CONSUMED, True),
        (AWAY, at(6), TrackKind.NOT_ONLINE, True),
        (AWAY, at(5), TrackKind.NOT_ONLINE, False),
        (AWAY, None, TrackKind.NOT_ONLINE, None),
        (Rejected("broken"), at(6), TrackKind.UNKNOWN, True),
        (connected(), None, TrackKind.UNKNOWN, None),
        (connected(), Rejected("broken"), TrackKind.UNKNOWN, None),
        (connected(consume_type=ConsumeType.CONSUME_ACTIVELY), at(6), TrackKind.PULL, True),
        (
            connected(message_model=MessageModel.BROADCASTING),
            at(6),
            TrackKind.CONSUME_BROADCASTING,
            None,
        ),
    ],
)
def test_the_table(
    connection: ConsumerConnection | KourouError,
    progress: OffsetWrapper | KourouError | None,
    kind: TrackKind,
    consumed: bool | None,
) -> None:
    found = track("g", connection, progress, "T", 5, {"TAGS": "a"})
    assert (found.group, found.kind, found.consumed) == ("g", kind, consumed)


def test_tracks_have_reasons() -> None:
    assert "nobody is here" in track("g", AWAY, at(6), "T", 5, {}).reason
    assert "broken" in track("g", connected(), Rejected("broken"), "T", 5, {}).reason
    assert track("g", connected(), at(6), "T", 5, {}) == MessageTrack(
        "g", TrackKind.CONSUMED, True, 6
    )


def kind_of(wanted: Subscription | None, properties: dict[str, str]) -> MessageTrack:
    connection = ConsumerConnection(subscriptions={} if wanted is None else {"T": wanted})
    return track("g", connection, at(6), "T", 5, properties)


def test_what_sql_keeps_back_is_not_consumed() -> None:
    wanted = Subscription("T", "price > 10", SQL92)
    assert kind_of(wanted, {"price": "11"}).kind is TrackKind.CONSUMED
    for properties in ({"price": "9"}, {}):
        found = kind_of(wanted, properties)
        assert found.kind is TrackKind.CONSUMED_BUT_FILTERED
        assert found.consumed is True
        assert "price > 10" in found.reason
    assert track("g", ConsumerConnection(subscriptions={"T": wanted}), at(5), "T", 5, {}).kind is (
        TrackKind.NOT_CONSUME_YET
    )


def test_what_a_filter_in_python_made_of_it_is_not_guessed() -> None:
    found = kind_of(Subscription("T", "vip", class_filter_mode=True), {})
    assert (found.kind, found.consumed) == (TrackKind.UNKNOWN, True)
    assert "vip" in found.reason


def test_who_names_no_subscription_hides_nothing() -> None:
    assert kind_of(None, {"TAGS": "a"}).kind is TrackKind.CONSUMED
    assert kind_of(Subscription("T", "no expression (", SQL92), {}).kind is TrackKind.CONSUMED
