"""The tolerant JSON reader, and the writer of maps with objects as keys."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import DecodeError
from kourou.model.limits import JSON_DEPTH_MAX
from kourou.protocol.wire.lenient_json import ObjectKey, dumps, loads

QUEUE: ObjectKey = (("brokerName", "b"), ("queueId", 3), ("topic", "T"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"brokerAddrs":{0:"127.0.0.1:10911"}}', {"brokerAddrs": {"0": "127.0.0.1:10911"}}),
        (b'{"offsetTable":{"T@G":{0:5,1:6}}}', {"offsetTable": {"T@G": {"0": 5, "1": 6}}}),
        (
            b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:0}}',
            {"offsetTable": {QUEUE: 0}},
        ),
        (
            b'{{"topic":"T","queueId":3,"brokerName":"b"}:{"a":[1]},\n}',
            {QUEUE: {"a": [1]}},
        ),
        (b"{'a':'it is \"so\"'}", {"a": 'it is "so"'}),
        (b"{a:1,b_c:true,$d:false,e-f:null}", {"a": 1, "b_c": True, "$d": False, "e-f": None}),
        (b"[1,2,]", [1, 2]),
        (b"[1,,2]", [1, 2]),
        (b'{"a":1,}', {"a": 1}),
        (b'// first\n{/* a */"a"/* b */:/* c */1}// last', {"a": 1}),
        (b"\xef\xbb\xbf{a:1}\r\n", {"a": 1}),
        (b'{"a":1}\n', {"a": 1}),
        (b"[+5,-5,.5,5.,1e3,-1.5E-2]", [5, -5, 0.5, 5.0, 1000.0, -0.015]),
        (rb"['\x41\'\v\0\/\t']", ["A'\v\0/\t"]),
        (rb"['\ud83d\ude00']", ["😀"]),
        (rb"['\ud83d']", ["\ufffd"]),
        (rb'["\ude00x"]', ["\ufffdx"]),
        (b'{"a":NaN,"b":undefined}', {"a": None, "b": None}),
        ("{'主题':'é'}".encode(), {"主题": "é"}),
        (b"{a:1,a:2}", {"a": 2}),
        (b"'x'", "x"),
        (b"{}", {}),
        (b"[{},]", [{}]),
        (b"{,}", {}),
    ],
)
def test_spellings_beyond_the_standard(text, value):
    assert loads(text) == value
    assert loads(memoryview(text)) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "ends"),
        (b"   ", "ends"),
        (b"{", "key"),
        (b"[", "ends"),
        (b"[1", "missing"),
        (b"[1 2]", "missing"),
        (b"{a}", "':'"),
        (b"{a:}", "value"),
        (b"{a:1 b:2}", "missing"),
        (b"{[1]:2}", "key"),
        (b"{{a:[1]}:2}", "not plain"),
        (b"{{{a:1}:2}:3}", "not plain"),
        (b"1 2", "follows"),
        (b"{}}", "follows"),
        (b"'abc", "within a string"),
        (b"'abc\\", "escape"),
        (rb"'\q'", "escape"),
        (rb"'\u12'", "escape"),
        (rb"'\u12g4'", "escape"),
        (rb"'\x4'", "escape"),
        (b"[hello]", "neither"),
        (b"[1.2.3]", "neither"),
        (b"[--1]", "neither"),
        ("[٣]".encode(), "neither"),
        ("[²]".encode(), "neither"),
        (b"[" + b"9" * 65 + b",]", "neither"),
        (b"[1e999,]", "too large"),
        (b"/* never ends", "comment"),
        (b"[1/2]", "comment"),
        (b"'\xff'", "UTF-8"),
        (b":", "value"),
    ],
)
def test_what_nobody_can_read_is_a_decode_error(text, complaint):
    with pytest.raises(DecodeError, match=complaint):
        loads(text)


def test_depth_is_bounded_where_the_reader_recurses():
    deep = b"[" * JSON_DEPTH_MAX + b"'x'" + b"]" * JSON_DEPTH_MAX
    assert loads(deep)
    with pytest.raises(DecodeError, match="deeper than 8"):
        loads(b"[" + deep + b"]")
    with pytest.raises(DecodeError, match="deeper than 2"):
        loads(b"{a:{{b:1}:2}}", depth_max=2)
    for bomb in (b"[" * 200_000, b"{a:" * 200_000, b"{" * 200_000, b"[" * 9999 + b"]" * 9999):
        with pytest.raises(DecodeError):
            loads(bomb)


def test_the_writer_uses_the_standard_wherever_it_has_a_form():
    value = {"b": [1, 2.5, None, True], "a": {"x": "ä\n"}, 3: (1, 2)}
    assert dumps(value) == '{"b":[1,2.5,null,true],"a":{"x":"ä\\n"},"3":[1,2]}'.encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_standard_json_is_read_alike_by_both_readers(value):
    text = msgspec.json.encode(value)
    assert loads(text) == value
    assert loads(text[:-1] + b",]" if text.endswith(b"]") and len(text) > 2 else text) == value
    # A comment forces the tolerant reader.
    assert loads(b"/**/" + text, depth_max=100) == value


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.builds(
    lambda name, number: (("name", name), ("number", number)), TEXT, st.integers(0, 99)
)


@given(st.dictionaries(KEYS, st.integers(-(10**60), 10**60)))
def test_maps_with_object_keys_come_back(table):
    assert loads(dumps({"t": table})) == {"t": table}


@pytest.mark.fuzz
@given(
    st.binary(max_size=200) | st.text(alphabet="{}[]:,'\"\\/*-+.019eEtrufalsn \n").map(str.encode)
)
def test_any_bytes_are_a_value_or_an_error_of_ours(data):
    with contextlib.suppress(DecodeError):
        loads(data)
