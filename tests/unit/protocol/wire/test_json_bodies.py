"""How every JSON body becomes a typed value."""

import contextlib
import json
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kourou.access.model import User, check_policy, check_user
from kourou.errors import BadRequest, Code, ConfigError, DecodeError
from kourou.model.limits import LENIENT_REPLY_BYTES_MAX, LENIENT_REQUEST_BYTES_MAX
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies import (
    access_bodies,
    broker_bodies,
    config_bodies,
    filter_bodies,
    heartbeat_body,
    lists_body,
    quota_bodies,
    registration_body,
    route_bodies,
    statistics_bodies,
    status_bodies,
)
from kourou.protocol.bodies.registration_body import BrokerRegistration
from kourou.protocol.bodies.statistics_bodies import (
    decode_offset_table,
    encode_offset_table,
)
from kourou.protocol.wire import properties_text
from kourou.protocol.wire.json_bodies import (
    Shape,
    reply_decoder,
    shape_decoder,
)


class Point(Shape, kw_only=True):
    at_x: int
    far: bool = False


decode = shape_decoder(Point, "point")


@pytest.mark.parametrize(
    "body",
    [
        b'{"atX":5,"far":true}',
        b'{"atX":"5","far":"true","other":[{}]}\n',
        b'{"atX":5,"far":1}',
        b"{atX:5,'far':'1',}",
        b"/* odd */ {atX:'5',far:true}",
    ],
)
def test_every_spelling_is_one_value(body):
    for spelling in (body, bytearray(body), memoryview(body)):
        assert decode(spelling) == Point(at_x=5, far=True)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{}", "missing required field `atX`"),
        (b'{"atX":"far"}', r"\$.atX"),
        (b'{"atX":5,"far":7}', r"\$.far"),
        (b'{"atX":', "malformed JSON"),
        (b"[]", "object"),
    ],
)
def test_errors_name_the_body_and_the_place(body, complaint):
    with pytest.raises(
        DecodeError, match=f"the body is not a valid point: .*{complaint}"
    ) as caught:
        decode(body)
    assert caught.value.wire_code == Code.SYSTEM_ERROR


def test_a_long_body_must_be_standard_json():
    blanks = b" " * LENIENT_REQUEST_BYTES_MAX
    assert decode(b'{"atX":5}' + blanks) == Point(at_x=5)
    with pytest.raises(DecodeError, match="longer than 262144"):
        decode(b"{atX:5}" + blanks)
    assert reply_decoder(Point, "point")(b"{atX:5}" + blanks) == Point(at_x=5)
    with pytest.raises(DecodeError, match="longer than 8388608"):
        reply_decoder(Point, "point")(b"{atX:5}" + b" " * LENIENT_REPLY_BYTES_MAX)


# -- all bodies: what they decode from, what they encode to, and malformed input -------------------


MODULES = (
    config_bodies,
    heartbeat_body,
    lists_body,
    registration_body,
    route_bodies,
    statistics_bodies,
    status_bodies,
    properties_text,
)
FUNCTIONS = {
    name: function
    for module in MODULES
    for name, function in vars(module).items()
    if name.startswith(("decode_", "encode_")) and function.__module__ == module.__name__
}
DECODERS = {name: function for name, function in FUNCTIONS.items() if name.startswith("decode_")}
Q0 = MessageQueue("T", "b", 0)
Q1 = MessageQueue("T", "b", 1)


def test_every_decoder_has_an_encoder():
    for name in DECODERS:
        assert name.replace("decode_", "encode_") in FUNCTIONS, name


JSON_DECODERS = {name: fn for name, fn in DECODERS.items() if name != "decode_properties_text"}


@pytest.mark.parametrize("name", JSON_DECODERS)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"5", b"'x'", b"[1]", b"\xff", b"{a:" * 50, b"[" * 100_000, b'{"a":1} x'],
    ids=repr,
)
def test_what_is_no_such_body_is_a_decode_error_with_a_code_for_clients(name, body):
    if name == "decode_registration" and body == b"":
        assert DECODERS[name](body) == BrokerRegistration()
        return
    with pytest.raises(DecodeError, match="the body is no") as caught:
        DECODERS[name](body)
    assert caught.value.wire_code == Code.SYSTEM_ERROR


NAMES = [
    "brokerDatas", "brokerAddrs", "queueDatas", "table", "topicList", "offsetTable", "clientID",
    "consumerDataSet", "groupName", "consumerIdList", "connectionSet", "mqSet", "lockOKMQSet",
    "topicConfigTable", "dataVersion", "subscriptionGroupTable", "data", "messageQueueTable",
    "consumerTable", "mqTable", "properties", "subscriptionSet", "queueData", "statsDay",
    "consumeStatsList", "brokerName", "topic", "queueId", "0", "T@G", "clientId", "group",
]  # fmt: skip
SOMETHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=15,
)


@pytest.mark.fuzz
@given(
    st.dictionaries(st.sampled_from(NAMES), SOMETHING, max_size=6).map(
        lambda value: str(value).replace("None", "null").encode()
    )
    | st.binary(max_size=100)
)
def test_any_bytes_are_a_body_or_an_error_of_ours(body):
    for decode in DECODERS.values():
        with contextlib.suppress(DecodeError, ConfigError):
            decode(body)


OWN_DECODERS = (
    access_bodies.decode_user_change,
    access_bodies.decode_users,
    partial(access_bodies.decode_policies, "till"),
    access_bodies.decode_policies_of_users,
    access_bodies.decode_refusals,
    broker_bodies.decode_setting_views,
    broker_bodies.decode_event_views,
    broker_bodies.decode_state_view,
    broker_bodies.decode_replicas,
    broker_bodies.decode_attempts,
    broker_bodies.decode_decision,
    filter_bodies.decode_filters,
    filter_bodies.decode_filter_servers,
    filter_bodies.decode_filter_trial,
    filter_bodies.decode_filter_statistics,
    quota_bodies.decode_quotas,
)
OWN_NAMES = [
    "username", "password", "userType", "userStatus", "kind", "roles", "curveKeys", "node",
    "subject", "policies", "policyType", "entries", "resource", "actions", "sourceIps", "decision",
    "untilMs", "winners", "counts", "attempts", "settings", "filters", "servers", "versions",
    "name", "offset", "atMs", "event", "limits", "members", "followers", "1", "-1",
    "99999999999999999999",
]  # fmt: skip
OWN_TEXTS = st.sampled_from(
    ["Topic:orders*", "Cluster:*", "*", "User:till", "Super", "Deny", "Pub", "writer:orders",
     "10.0.0.*", "10.0.0.{1,2}", "1-9", "::/0", "0.0.0.0/0", "Custom", "topic", "x" * 300,
     "\x00", "a/b/c"]
)  # fmt: skip
OWN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.text(max_size=5) | OWN_TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(OWN_NAMES), inner, max_size=6)
    ),
    max_leaves=20,
)


@pytest.mark.fuzz
@given(OWN.map(json.dumps).map(str.encode) | st.binary(max_size=100))
@example(b'[{"kind":"of a later version"}]')
def test_any_bytes_are_a_body_of_kourous_own_requests_or_an_error_of_ours(body):
    for decode in OWN_DECODERS:
        with contextlib.suppress(DecodeError, BadRequest):
            decode(body)
    with contextlib.suppress(DecodeError, BadRequest):
        check_user(access_bodies.decode_user_change(body).applied(User(name="till")))
    with contextlib.suppress(DecodeError, BadRequest):
        for policy in access_bodies.decode_policies("till", body):
            check_policy(policy)


NEED_SOMETHING = {
    "decode_group_config",
    "decode_heartbeat",
    "decode_lock_batch",
    "decode_offset_moved",
    "decode_subscription_check",
}


@pytest.mark.parametrize("name", JSON_DECODERS)
def test_an_empty_object_or_one_of_nulls_is_empty_or_names_what_is_missing(name):
    decode = DECODERS[name]
    for body in (b"{}", b'{"unknown":null}', b"{'unknown':{a:1},}"):
        if name in NEED_SOMETHING:
            with pytest.raises(DecodeError, match="missing required field"):
                decode(body)
        else:
            assert decode(body) == decode(b"{ }")


# -- one queue map stands for all ------------------------------------------------------------------


def test_maps_with_queues_as_keys_are_written_as_rocketmq_writes_them():
    assert encode_offset_table({Q0: 5, Q1: -1}) == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,'
        b'{"brokerName":"b","queueId":1,"topic":"T"}:-1}}'
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}',
        b'{"offsetTable":{{"topic":"T","queueId":"0","brokerName":"b"}:"5"}}\n',
        b"{offsetTable:{{topic:'T',queueId:0,brokerName:'b'}:5,}}",
        b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}',
    ],
)
def test_offset_tables_are_read_in_every_form(body):
    assert decode_offset_table(body) == {Q0: 5}


def test_the_list_form_for_cpp_clients():
    body = encode_offset_table({Q0: 5}, list_form=True)
    assert body == b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{"T":5}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0}:5}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:9223372036854775808}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":2147483648,"topic":"T"}:1}}',
        b'{"offsetTable":5}',
    ],
)
def test_malformed_offset_tables(body):
    with pytest.raises(DecodeError):
        decode_offset_table(body)


@given(
    st.dictionaries(
        st.builds(
            MessageQueue,
            st.text(st.characters(exclude_categories=["Cs"])),
            st.text(st.characters(exclude_categories=["Cs"])),
            st.integers(-(2**31), 2**31 - 1),
        ),
        st.integers(-(2**63), 2**63 - 1),
        max_size=5,
    ),
    st.booleans(),
)
def test_any_offset_table_comes_back(table, list_form):
    assert decode_offset_table(encode_offset_table(table, list_form=list_form)) == table


def test_a_thousand_queues_are_read_by_the_tolerant_reader():
    table = {MessageQueue("T", "b", number): number for number in range(1000)}
    assert decode_offset_table(encode_offset_table(table)) == table
