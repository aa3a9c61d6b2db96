"""The signature equals that of RocketMQ's own client, and anything changed breaks it."""

import pytest

from kourou.access.signature import SIGNATURE, same_secret, sign, signed_bytes, verify

SEND = {
    "AccessKey": "kourouUser",
    "a": "pg",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01k1\x02TAGS\x01t1\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


@pytest.mark.parametrize(
    ("fields", "secret", "body", "signature"),
    [
        (
            {"topic": "TopicTest", "AccessKey": "RocketMQ"},
            "12345678",
            b"",
            "0jiwhsaYp5ObE5GObbZH1I8/FT4=",
        ),
        (SEND, "kourouSecret", b"Hello", "yW+cMkT0hi5GujaUAQGk3SCwxiM="),
        (
            {
                "a": "pg",
                "AccessKey": "kourouUser",
                "b": "orders",
                "i": "KEYS\x01ü\x02",
                "SecurityToken": "tok-1",
            },
            "kourouSecret",
            "grüße ✓".encode(),
            "MR7lamdeFB+pobRMiyudXwih8aY=",
        ),
        (
            {"AccessKey": "RocketMQ"},
            "12345678",
            b'{"clientID":"c1"}',
            "kwsNPItF/SSCzNWJ93IV9fe62yw=",
        ),
        (
            {"AccessKey": "RocketMQ", "topic": "TopicTest", "x": None},
            "12345678",
            b"",
            "356mLBBLLrWmH+p5JN2BPhnOnBQ=",
        ),
    ],
)
def test_signatures_of_the_java_client(fields, secret, body, signature) -> None:
    assert sign(fields, (body,), secret) == signature
    assert verify({**fields, SIGNATURE: signature}, (body,), secret)


def test_a_marker_that_clients_add_later_is_not_signed() -> None:
    assert signed_bytes({**SEND, "_UNIQUE_KEY_QUERY": "true"}, ()) == signed_bytes(SEND, ())


def test_a_body_in_pieces_is_the_same_body() -> None:
    assert sign(SEND, (b"Hel", memoryview(b"lo")), "s") == sign(SEND, (b"Hello",), "s")


@pytest.mark.parametrize("given", ["", "AAAA", "0JIWHSAYP5OBE5GOBBZH1I8/FT4=", "ü", None])
def test_a_wrong_signature_is_refused(given) -> None:
    fields = {"topic": "TopicTest", "AccessKey": "RocketMQ", SIGNATURE: given}
    assert not verify(fields, (), "12345678")


def test_every_value_and_the_body_are_protected() -> None:
    signed = {**SEND, SIGNATURE: sign(SEND, (b"Hello",), "s")}
    for key in SEND:
        assert not verify({**signed, key: SEND[key] + "x"}, (b"Hello",), "s"), key
    assert not verify(signed, (b"hello",), "s")
    assert not verify(signed, (b"Hello",), "t")


@pytest.mark.parametrize(
    "other", ["", "secre", "secrets", "Secret", "secret\0", "sécret", "\ud800"]
)
def test_secrets_are_the_same_only_as_a_whole(other: str) -> None:
    assert same_secret("secret", "secret")
    assert same_secret(other, other)
    assert not same_secret("secret", other)
    assert not same_secret(other, "secret")
