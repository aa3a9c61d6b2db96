"""Bodies: as large as they may be and no larger; nobody holds memory for nothing."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou_console.http import request_input
from kourou_console.http.request_input import Reader, decoded, path_names, query_pairs
from kourou_console.operation import Operation
from kourou_console.operations import OPERATIONS
from kourou_rigs.console import ConsoleHere

MESSAGES = "/v1/topics/orders/messages"
BATCHES = "/v1/topics/orders/batches"


def raw(console: ConsoleHere, *parts: bytes) -> bytes:
    """The answer to these bytes, until the connection is closed or falls silent at the end."""
    with console.dial() as link:
        for part in parts:
            link.sendall(part)
        found = b""
        while b"\r\n\r\n" not in found or not complete(found):
            more = link.recv(65_536)
            if not more:
                break
            found += more
        return found


def complete(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return head.startswith(b"HTTP/1.1 100")


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def test_the_largest_is_taken_and_a_larger_one_is_not(console):
    assert console.post(MESSAGES, body=b"x" * BODY_SIZE_BYTES_MAX).status == 200
    larger = console.post(MESSAGES, body=b"x" * (BODY_SIZE_BYTES_MAX + 1))
    assert larger.status == 413
    assert larger.json["hint"].startswith("send a smaller body")


def test_it_is_refused_by_its_length_before_a_byte_is_read(console):
    found = raw(console, head(MESSAGES, "Content-Length: 999999999"))
    assert found.startswith(b"HTTP/1.1 413")


def test_who_asks_first_is_told_to_go_on_or_not(console):
    refused = raw(console, head(MESSAGES, "Content-Length: 999999999", "Expect: 100-continue"))
    assert refused.startswith(b"HTTP/1.1 413")
    asked = raw(console, head(MESSAGES, "Content-Length: 2", "Expect: 100-continue"))
    assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_body_without_a_length_ends_at_the_bound(console):
    chunk = b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))
    found = raw(console, head(MESSAGES, "Transfer-Encoding: chunked"), *[chunk] * 5)
    assert found.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_bodies_are_taken(console, encoding, pack):
    answer = console.post(
        MESSAGES, body=pack(b"hello" * 1_000), headers={"Content-Encoding": encoding}
    )
    assert answer.status == 200
    message = console.run(console.gateway.admin.messages.by_id("orders", answer.json["message_id"]))
    assert bytes(message.body) == b"hello" * 1_000


JSON_GZIP = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


# Without a time in it: the bytes are part of the test's name, which all workers have to agree on.
@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"x" * 5_000, mtime=0)[:-9], b""])
def test_what_is_not_compressed_as_it_says(console, body):
    assert console.post(BATCHES, body=body, headers=JSON_GZIP).status == 400


def test_other_encodings_are_named(console):
    answer = console.post(MESSAGES, body=b"x", headers={"Content-Encoding": "br"})
    assert answer.status == 415
    assert "gzip" in answer.json["hint"]


def test_deep_json_is_refused(console):
    for content in (
        b'{"messages":' + b"[" * 200_000,
        b'{"messages":[{"body":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    ):
        answer = console.post(BATCHES, body=content, headers={"Content-Type": "application/json"})
        assert answer.status == 400


def test_bodies_share_a_budget(console, monkeypatch):
    monkeypatch.setattr(request_input, "GATEWAY_BODIES_BYTES_MAX", 10_000)
    refused = console.post(MESSAGES, body=b"x" * 10_001)
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert console.post(MESSAGES, body=b"x" * 10_000).status == 200
    assert console.service._request_metrics.body_bytes() == 0


def test_a_body_that_does_not_come_in_time(console, monkeypatch):
    monkeypatch.setattr(request_input, "GATEWAY_BODY_S_MAX", 0.1)
    found = raw(console, head(MESSAGES, "Content-Length: 10"), b"half")
    assert found.startswith(b"HTTP/1.1 408")
    assert console.service._request_metrics.body_bytes() == 0


# -- what is not meant for any operation ----------------------------------------------------------

TEXT = st.text(max_size=12) | st.sampled_from(
    [
        "0",
        "-1",
        "9" * 400,
        "true",
        "null",
        "1e999",
        "NaN",
        "\0",
        "a/b",
        "..",
        "2026-01-01T00:00:00Z",
    ]
)
QUERY = st.lists(
    st.tuples(
        st.sampled_from(["count", "broker", "from", "to", "preview", "cursor", "queue", "x"])
        | TEXT,
        TEXT,
    ),
    max_size=5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "body", "name", "settings", "queues", "force", "to", "key"]
            )
            | TEXT,
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@pytest.mark.fuzz
@given(
    st.sampled_from(OPERATIONS),
    st.lists(TEXT, min_size=4, max_size=4),
    QUERY.map(urlencode) | st.text(max_size=40),
    JSON.map(json.dumps).map(str.encode) | st.binary(max_size=40),
)
def test_any_path_query_and_body_are_an_operations_or_a_bad_request(
    operation: Operation, places: list[str], query: str, body: bytes
) -> None:
    reader = Reader(operation)
    in_path = places[: len(path_names(operation.path))]
    with suppress(BadRequest):
        reader.parameters(in_path, query_pairs(query))
    with suppress(BadRequest):
        decoded(quote(places[0]) + query)
    if operation.body is not None:
        with suppress(BadRequest):
            reader.body(body)
