"""The signature equals that of RocketMQ's own client, and anything changed breaks it."""

import base64
import hashlib
import hmac

import pytest

from kourou.access.signature import (
    SIGNATURE,
    Buffer,
    Fields,
    SignedFields,
    SigningKey,
    same_secret,
    sign,
    signed_text,
    verify,
)

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


def right(fields: Fields, body: tuple[Buffer, ...], secret: str) -> bool:
    return verify(SignedFields.of(fields), body, SigningKey(secret))


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
    assert right({**fields, SIGNATURE: signature}, (body,), secret)


def test_a_marker_that_clients_add_later_is_not_signed() -> None:
    assert signed_text({**SEND, "_UNIQUE_KEY_QUERY": "true"}) == signed_text(SEND)


def test_values_are_in_the_order_of_their_keys_whatever_the_order_of_the_fields() -> None:
    assert signed_text(dict(reversed(SEND.items()))) == signed_text(SEND)
    assert signed_text({"a": "1", "B": "2"}) == b"21", "capital letters come first"
    assert signed_text({"\U0001f600": "1", "\ufffd": "2"}) == b"12", "by UTF-16, as in Java"
    assert signed_text({"b": None, "a": "1"}) == b"1null"
    assert signed_text({"a": "1"}) == b"1"
    assert signed_text({SIGNATURE: "1"}) == signed_text({}) == b""


def test_what_was_sent_is_kept_with_what_is_checked() -> None:
    fields = {**SEND, SIGNATURE: "s="}
    signed = SignedFields.of(fields)
    assert (signed.access_key, signed.signature) == ("kourouUser", b"s=")
    assert signed.fields() == fields
    without = SignedFields.of({"AccessKey": None})
    assert (without.access_key, without.signature, without.text) == ("", b"", b"null")


@pytest.mark.parametrize("given", ["", "AAAA", "0JIWHSAYP5OBE5GOBBZH1I8/FT4=", "ü", None])
def test_a_wrong_signature_is_refused(given) -> None:
    fields = {"topic": "TopicTest", "AccessKey": "RocketMQ", SIGNATURE: given}
    assert not right(fields, (), "12345678")


def test_every_value_and_the_body_are_protected() -> None:
    signed = {**SEND, SIGNATURE: sign(SEND, (b"Hello",), "s")}
    for key in SEND:
        assert not right({**signed, key: SEND[key] + "x"}, (b"Hello",), "s"), key
    assert not right(signed, (b"hello",), "s")
    assert not right(signed, (b"Hello",), "t")
    assert right(signed, (b"Hello",), "s")


@pytest.mark.parametrize("secret", ["", "s", "x" * 63, "x" * 64, "x" * 65, "geheim-✓", "y" * 256])
def test_a_prepared_key_signs_as_the_secret_itself(secret: str) -> None:
    """Any number of times: a check leaves nothing behind for the next one."""
    key = SigningKey(secret)
    for body in (b"", b"x", b"x" * 100, b"x" * 100_000, b"x"):
        digest = hmac.new(secret.encode(), b"text" + body, hashlib.sha1).digest()
        wanted = base64.b64encode(digest)
        assert key.signature(b"text", (body,)) == wanted
        assert key.signature(b"", (b"te", memoryview(b"xt"), bytearray(body))) == wanted
    assert key.secret == secret


@pytest.mark.parametrize(
    "other", ["", "secre", "secrets", "Secret", "secret\0", "sécret", "\ud800"]
)
def test_secrets_are_the_same_only_as_a_whole(other: str) -> None:
    assert same_secret("secret", "secret")
    assert same_secret(other, other)
    assert not same_secret("secret", other)
    assert not same_secret(other, "secret")
