"""Headers of the name server: routes, registrations, key/value settings."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response

Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class PutKvConfig(Request, kw_only=True, frozen=True):
    """PUT_KV_CONFIG (100): set a key, readable by all clients."""

    code: ClassVar[int] = 100
    namespace: str
    key: str
    value: str


class GetKvConfig(Request, kw_only=True, frozen=True):
    """GET_KV_CONFIG (101): get the value of a key."""

    code: ClassVar[int] = 101
    namespace: str
    key: str


class GetKvConfigResponse(Response, kw_only=True, frozen=True):
    """The value, absent if there is none."""

    value: str | None = None


class DeleteKvConfig(Request, kw_only=True, frozen=True):
    """DELETE_KV_CONFIG (102): delete a key."""

    code: ClassVar[int] = 102
    namespace: str
    key: str


class RegisterBroker(Request, kw_only=True, frozen=True):
    """REGISTER_BROKER (103): register a broker; the body has its topics.

    `body_crc32` is the body's CRC-32 without its top bit, 0 to skip the check. Kourou's own:
    `listeners` has one `host:port` for each named listener, including those for RocketMQ's clients;
    `filter_listeners` has the same of each filter server, None if the body lists them all; `epoch`
    is the newest of its log, None for a broker without epochs (RocketMQ's); `promotion` is the
    first epoch after the newest promotion of its log, 0 if there was none.
    """

    code: ClassVar[int] = 103
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str | None = None
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0
    listeners: dict[str, str] | None = None
    filter_listeners: list[dict[str, str]] | None = None
    epoch: Epoch | None = None
    promotion: Epoch | None = None


class RegisterBrokerResponse(Response, kw_only=True, frozen=True):
    """For a follower: its leader's addresses.

    Kourou's own: a leader is refused (14) with the `epoch` of another broker that leads its log; a
    follower gets the epoch of the newest promotion of its log, which its own promotion must exceed.
    `users` is the mark of the users that were received from this broker, "" if none were; absent if
    the name server takes none from it.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    epoch: Epoch | None = None
    users: str | None = None


class UnregisterBroker(Request, kw_only=True, frozen=True):
    """UNREGISTER_BROKER (104): unregister a broker."""

    code: ClassVar[int] = 104
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetRouteInfoByTopic(Request, kw_only=True, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC (105): get the brokers and queues of a topic."""

    code: ClassVar[int] = 105
    topic: str
    accept_standard_json_only: bool | None = None


class GetBrokerClusterInfo(Request, kw_only=True, frozen=True):
    """GET_BROKER_CLUSTER_INFO (106): get all clusters, broker names and addresses."""

    code: ClassVar[int] = 106


class WipeWritePermOfBroker(Request, kw_only=True, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER (205): remove a broker from the writable routes of its topics."""

    code: ClassVar[int] = 205
    broker_name: str


class WipeWritePermOfBrokerResponse(Response, kw_only=True, frozen=True):
    """The number of changed topics."""

    wipe_topic_count: Int32


class AddWritePermOfBroker(Request, kw_only=True, frozen=True):
    """ADD_WRITE_PERM_OF_BROKER (327): undo WIPE_WRITE_PERM_OF_BROKER."""

    code: ClassVar[int] = 327
    broker_name: str


class AddWritePermOfBrokerResponse(Response, kw_only=True, frozen=True):
    """The number of changed topics."""

    add_topic_count: Int32


class GetAllTopicListFromNamesrv(Request, kw_only=True, frozen=True):
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206): get the names of all topics with a route."""

    code: ClassVar[int] = 206


class DeleteTopicInNamesrv(Request, kw_only=True, frozen=True):
    """DELETE_TOPIC_IN_NAMESRV (216): delete a route; with `cluster_name` only in that cluster."""

    code: ClassVar[int] = 216
    topic: str
    cluster_name: str | None = None


class GetKvListByNamespace(Request, kw_only=True, frozen=True):
    """GET_KVLIST_BY_NAMESPACE (219): get all keys and values of a namespace."""

    code: ClassVar[int] = 219
    namespace: str


class GetTopicsByCluster(Request, kw_only=True, frozen=True):
    """GET_TOPICS_BY_CLUSTER (224): get the names of the topics of one cluster's brokers."""

    code: ClassVar[int] = 224
    cluster: str


class GetSystemTopicListFromNamesrv(Request, kw_only=True, frozen=True):
    """GET_SYSTEM_TOPIC_LIST_FROM_NS (304): get cluster and broker names, which are also topics."""

    code: ClassVar[int] = 304


class GetUnitTopicList(Request, kw_only=True, frozen=True):
    """GET_UNIT_TOPIC_LIST (311): get the topics of RocketMQ's units."""

    code: ClassVar[int] = 311


class GetHasUnitSubTopicList(Request, kw_only=True, frozen=True):
    """GET_HAS_UNIT_SUB_TOPIC_LIST (312): get the topics to which units subscribe."""

    code: ClassVar[int] = 312


class GetHasUnitSubUnunitTopicList(Request, kw_only=True, frozen=True):
    """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313): get those of them that belong to no unit."""

    code: ClassVar[int] = 313


class UpdateNamesrvConfig(Request, kw_only=True, frozen=True):
    """UPDATE_NAMESRV_CONFIG (318): change settings; Kourou's name server refuses all keys."""

    code: ClassVar[int] = 318


class GetNamesrvConfig(Request, kw_only=True, frozen=True):
    """GET_NAMESRV_CONFIG (319): get every setting of the name server."""

    code: ClassVar[int] = 319


class QueryDataVersion(Request, kw_only=True, frozen=True):
    """QUERY_DATA_VERSION (322): check whether a broker's topics changed since its registration.

    The body is the broker's version.
    """

    code: ClassVar[int] = 322
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponse(Response, kw_only=True, frozen=True):
    """True: register again with all topics."""

    changed: bool


class PutUsers(Request, kw_only=True, frozen=True):
    """PUT_USERS (30067, Kourou's own): a broker's users, policies and encrypted secrets.

    The body has all of them, compressed; they replace those received from that broker before.
    """

    code: ClassVar[int] = 30067
    cluster_name: str
    broker_name: str
