"""Drafts are records that only lack their place."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kourou.client.producer.drafts import (
    DraftDestination,
    Drafting,
    delay_property,
    joined_keys,
    level_of,
)
from kourou.client.settings.client_settings import CompressionKind, ProducerSettings
from kourou.errors import BadRequest, ConfigError, MessageIllegal
from kourou.model.message import (
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    DELAY_LEVELS_MS,
    Compression,
    SysFlag,
)
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import decode_record, stamp

PLACE = DraftDestination(b"T", 2, "c1")
HOST = encode_host(("127.0.0.1", 0))


def drafting(**settings) -> Drafting:
    return Drafting(ProducerSettings(**settings), HOST)


def stored(draft: bytes):
    record = bytearray(draft)
    stamp(record, 0, queue_offset=5, position=9, store_timestamp=7, store_host=HOST)
    return decode_record(record)


@pytest.mark.feature("F171", "F294")
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (CompressionKind.ZLIB, Compression.ZLIB),
        (CompressionKind.LZ4, Compression.LZ4),
        (CompressionKind.ZSTD, Compression.ZSTD),
    ],
)
def test_large_bodies_are_compressed(kind, code):
    body = b"flight " * 1_000
    draft = drafting(compression=kind).draft(PLACE, body, "U", 1)
    assert len(draft) < len(body) // 4
    message = stored(draft)
    assert message.body == body
    assert message.sys_flag & SysFlag.COMPRESSED
    assert (message.sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT == code


def test_what_does_not_shrink_is_not_compressed():
    import random

    body = random.Random(1).randbytes(5_000)
    message = stored(drafting().draft(PLACE, body, "U", 1))
    assert message.body == body
    assert not message.sys_flag & SysFlag.COMPRESSED


@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", "REAL_TOPIC", "__CRC32#", "WAIT"])
def test_reserved_property_names_are_refused(name):
    with pytest.raises(BadRequest, match=name):
        drafting().draft(PLACE, b"", "U", 1, properties={name: "x"})


@pytest.mark.parametrize("bad", [{"properties": {"a": ""}}, {"keys": "a\x02"}])
def test_what_properties_cannot_hold(bad):
    with pytest.raises(MessageIllegal):
        drafting().draft(PLACE, b"", "U", 1, **bad)


@pytest.mark.parametrize("more", [{}, {"keys": "k"}])
@pytest.mark.parametrize("tag", ["a || b", "||", " paid", "paid\t", "a\x01b", "a\nb", 5])
def test_a_tag_that_nobody_could_subscribe_to_is_refused(tag, more):
    with pytest.raises(BadRequest, match="the tag"):
        drafting().draft(PLACE, b"", "U", 1, tag=tag, **more)


@pytest.mark.parametrize("more", [{}, {"keys": "k"}])
@pytest.mark.parametrize("tag", ["a b", "a|b", "R&D", "*", "主题", "a,b", "x" * 200])
def test_every_other_tag_of_rocketmq_is_sent(tag, more):
    assert stored(drafting().draft(PLACE, b"", "U", 1, tag=tag, **more)).tag == tag


def test_an_empty_tag_is_none():
    assert stored(drafting().draft(PLACE, b"", "U", 1, tag="")).tag is None


@pytest.mark.feature("F013", "F367")
def test_keys():
    assert joined_keys("a") == "a"
    assert joined_keys("  a   b ") == "a b"
    assert joined_keys(["a", "b"]) == "a b"
    for bad in (["a b"], [""], ["a\t"]):
        with pytest.raises(BadRequest):
            joined_keys(bad)
    for no_text in (5, b"ab", [5], [b"ab"]):
        with pytest.raises(BadRequest, match="; it must be a string or a list of strings"):
            joined_keys(no_text)


def test_tags_flags_and_keys_of_any_number_are_kept_apart():
    """Places remember encoded properties and must not mix up whose they are."""
    place = DraftDestination(b"T", 2, "c1")
    made = drafting()
    for turn in range(200):
        tag, flag = (None if turn % 3 == 0 else f"tag{turn % 150}"), turn % 4
        message = stored(
            made.draft(place, b"body", f"U{turn:07d}"[: 2 + turn % 7], 1, tag, "", None, flag)
        )
        assert (message.tag, message.flag) == (tag, flag)
        assert message.properties["UNIQ_KEY"] == f"U{turn:07d}"[: 2 + turn % 7]
        assert message.properties["CLUSTER"] == "c1"
    assert len(place.endings) <= 64


def test_hosts_of_ipv6_go_the_general_way():
    v6 = Drafting(ProducerSettings(), encode_host(("::1", 0)))
    place = DraftDestination(b"T", 2, "c1", store_host_v6=True)
    record = bytearray(v6.draft(place, b"body", "U", 1, "tag"))
    stamp(
        record, 0, queue_offset=5, position=9, store_timestamp=7, store_host=encode_host(("::2", 1))
    )
    message = decode_record(record)
    assert (message.born_host[0], message.store_host[0], message.tag) == ("::1", "::2", "tag")


# -- delays ----------------------------------------------------------------------------------------


@pytest.mark.feature("F247", "F248")
def test_a_level_or_its_time() -> None:
    assert delay_property(DELAY_LEVELS_MS, 0) is None
    assert delay_property(DELAY_LEVELS_MS, 0, timedelta()) is None
    for level, ms in enumerate(DELAY_LEVELS_MS, 1):
        expected = {"DELAY": str(level)}
        assert delay_property(DELAY_LEVELS_MS, level) == expected
        assert delay_property(DELAY_LEVELS_MS, 0, timedelta(milliseconds=ms)) == expected
    assert delay_property(DELAY_LEVELS_MS, 99) == {"DELAY": "99"}  # as the highest, brokers say


@pytest.mark.parametrize(
    ("level", "delay", "says"),
    [
        (-1, None, "must be a whole number of at least 1"),
        (1.5, None, "must be a whole number of at least 1"),
        ("3", None, "must be a whole number of at least 1"),
        (None, None, "must be a whole number of at least 1"),
        (0, 5, r"for example timedelta\(seconds=10\)"),
        (0, 1.5, r"for example timedelta\(seconds=10\)"),
        (0, "1h", r"for example timedelta\(seconds=10\)"),
        (1, timedelta(seconds=1), "both"),
    ],
)
def test_what_is_no_delay_is_refused(level, delay, says) -> None:
    with pytest.raises(BadRequest, match=says):
        delay_property(DELAY_LEVELS_MS, level, delay)


def test_a_time_between_two_levels_is_refused_with_both_named() -> None:
    with pytest.raises(
        BadRequest, match=r"0:15:00 is not a delay level of the brokers .*0:10:00 \(level 14\)"
    ):
        level_of(DELAY_LEVELS_MS, timedelta(minutes=15))
    for wrong in (timedelta(seconds=-1), timedelta(milliseconds=1), timedelta(days=1)):
        with pytest.raises(BadRequest):
            level_of(DELAY_LEVELS_MS, wrong)


def test_a_producer_uses_the_configured_levels() -> None:
    settings = ProducerSettings(delay_levels="2s 1d")
    assert settings.delay_levels_ms == (2_000, 86_400_000)
    with pytest.raises(ConfigError, match="level 2"):
        ProducerSettings(delay_levels="1s soon")


@pytest.mark.parametrize("properties", [5, "shop", ["shop"]])
def test_properties_that_are_no_mapping_are_refused(properties) -> None:
    with pytest.raises(BadRequest, match="it must be a dict"):
        drafting().draft(PLACE, b"", "UNIQ1", 0, properties=properties)
