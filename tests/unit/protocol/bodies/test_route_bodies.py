"""Routes, clusters, lists and tables of the name server."""

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.model.topic import BrokerData, QueueData, TopicRoute
from kourou.protocol.bodies.route_bodies import (
    ClusterInfo,
    decode_cluster_info,
    decode_kv_table,
    decode_topic_list,
    decode_topic_route,
    encode_cluster_info,
    encode_kv_table,
    encode_topic_list,
    encode_topic_route,
)

ROUTE = TopicRoute(
    (BrokerData("c", "b", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}),),
    (QueueData("b", 4, 8, 6, 1),),
    {"127.0.0.1:10911": ("127.0.0.1:30000",)},
    "b:4",
)


@pytest.mark.parametrize("route", [ROUTE, TopicRoute()])
def test_routes_come_back(route):
    assert decode_topic_route(encode_topic_route(route)) == route


def test_a_route_is_standard_json_without_nulls():
    body = msgspec.json.decode(
        encode_topic_route(TopicRoute(ROUTE.broker_datas, ROUTE.queue_datas))
    )
    assert body == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "127.0.0.1:10911", "1": "127.0.0.1:10921"},
                "brokerName": "b",
                "cluster": "c",
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "b",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 1,
                "writeQueueNums": 8,
            }
        ],
    }


def test_a_route_of_an_old_broker():
    """Broker ids without quotes, and the flag misspelled as up to 4.8."""
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"b","cluster":"c"}],'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":"4","writeQueueNums":8,'
        b'"topicSynFlag":2}]}\n'
    )
    assert decode_topic_route(body) == TopicRoute(
        (BrokerData("c", "b", {0: "127.0.0.1:10911"}),), (QueueData("b", 4, 8, 6, 2),)
    )


def test_a_route_of_a_later_broker():
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false,"zoneName":null}],"queueDatas":[],"filterServerTable":null,'
        b'"orderTopicConf":null,"topicQueueMappingByBroker":{}}'
    )
    assert decode_topic_route(body) == TopicRoute((BrokerData("c", "b", {0: "a:1"}),))


@pytest.mark.parametrize("number", ["x", "", "-1", "1" * 19])
def test_a_broker_id_is_a_number(number):
    broker = {"brokerName": "b", "brokerAddrs": {number: "a:1"}}
    body = msgspec.json.encode({"brokerDatas": [broker]})
    with pytest.raises(DecodeError, match="topic route"):
        decode_topic_route(body)


@pytest.mark.parametrize(
    "info",
    [ClusterInfo(), ClusterInfo({"b": BrokerData("c", "b", {0: "a:1"})}, {"c": ("b",)})],
)
def test_clusters_come_back(info):
    assert decode_cluster_info(encode_cluster_info(info)) == info


def test_clusters_as_rocketmq_writes_them():
    body = (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["b"]}}'
    )
    assert decode_cluster_info(body).brokers["b"].broker_addrs == {0: "a:1"}


def test_topic_lists():
    assert encode_topic_list(["a", "b"]) == b'{"topicList":["a","b"]}'
    assert decode_topic_list(b'{"topicList":["a","b"]}') == (["a", "b"], None)
    assert decode_topic_list(encode_topic_list(iter(["a"]), "h:1")) == (["a"], "h:1")
    assert encode_topic_list([]) == b'{"topicList":[]}'
    assert decode_topic_list(b'{"brokerAddr":null}') == ([], None)


def test_key_value_tables():
    assert encode_kv_table({"a": "b", "c": ""}) == b'{"table":{"a":"b","c":""}}'
    assert decode_kv_table(b'{"table":{"a":"b","c":""}}') == {"a": "b", "c": ""}
    assert encode_kv_table({}) == b'{"table":{}}'
    assert decode_kv_table(b'{"table":{"a":"b","c":null}}') == {"a": "b"}
    with pytest.raises(DecodeError, match="key/value table"):
        decode_kv_table(b'{"table":{"a":{}}}')


def test_broker_ids_are_bare_numbers_for_those_who_take_routes_apart_by_hand():
    """As the name servers of RocketMQ write them for clients before 4.9.4."""
    brokers = (BrokerData("c", "b", {0: 'h:1,"0":', 12: "[::1]:2}"}),)
    route = TopicRoute(brokers, (QueueData("b", 4, 4, 6, 0),))
    body = encode_topic_route(route, strict=False)
    assert b'"brokerAddrs":{0:"h:1,\\"0\\":",12:"[::1]:2}"}' in body
    assert b'"readQueueNums":4' in body
    assert decode_topic_route(body) == route
    assert encode_topic_route(route) == encode_topic_route(route, strict=True) != body
