"""Headers of broker administration: settings, statistics, cleaning, topics, history, accounts.

RocketMQ has no history: reading control events and earlier states, and undoing a change, are
Kourou's own.
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class UpdateBrokerConfig(Request, kw_only=True, frozen=True):
    """UPDATE_BROKER_CONFIG (25): change dynamic settings while the broker runs."""

    code: ClassVar[int] = 25
    reason: str = ""  # the reason, for the history


class GetBrokerConfig(Request, kw_only=True, frozen=True):
    """GET_BROKER_CONFIG (26): get the current value of every setting.

    Kourou's own: `described` requests JSON (kourou.protocol.bodies.broker_bodies) instead of
    properties text.
    """

    code: ClassVar[int] = 26
    described: bool = False


class GetBrokerConfigResponse(Response, kw_only=True, frozen=True):
    """The settings' data version, as JSON. `described`: the body is JSON as requested."""

    version: str | None = None
    described: bool = False


class GetBrokerRuntimeInfo(Request, kw_only=True, frozen=True):
    """GET_BROKER_RUNTIME_INFO (28): get rates, bounds and sizes, as a table of texts."""

    code: ClassVar[int] = 28


class CleanExpiredConsumeQueue(Request, kw_only=True, frozen=True):
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): delete queue files that only point to deleted messages."""

    code: ClassVar[int] = 306


class CleanUnusedTopic(Request, kw_only=True, frozen=True):
    """CLEAN_UNUSED_TOPIC (316): delete the queues of deleted topics."""

    code: ClassVar[int] = 316


class DeleteExpiredCommitLog(Request, kw_only=True, frozen=True):
    """DELETE_EXPIRED_COMMITLOG (329): delete expired log segments now, at any hour."""

    code: ClassVar[int] = 329


class ViewBrokerStatsData(Request, kw_only=True, frozen=True):
    """VIEW_BROKER_STATS_DATA (315): get sums and rates of one counter."""

    code: ClassVar[int] = 315
    stats_name: str
    stats_key: str


# -- topics ---------------------------------------------------------------------------------------


class UpdateAndCreateTopic(Request, kw_only=True, frozen=True):
    """UPDATE_AND_CREATE_TOPIC (17): create or change a topic. RocketMQ ignores `order` here."""

    code: ClassVar[int] = 17
    topic: str
    default_topic: str = ""
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    reason: str = ""  # the reason, for the history


class DeleteTopicInBroker(Request, kw_only=True, frozen=True):
    """DELETE_TOPIC_IN_BROKER (215): delete a topic and its queues; its route stays."""

    code: ClassVar[int] = 215
    topic: str
    reason: str = ""  # the reason, for the history


class GetAllTopicConfig(Request, kw_only=True, frozen=True):
    """GET_ALL_TOPIC_CONFIG (21): get the configuration of every topic."""

    code: ClassVar[int] = 21


class GetTopicStatsInfo(Request, kw_only=True, frozen=True):
    """GET_TOPIC_STATS_INFO (202): get bounds and last store time of a topic's queues."""

    code: ClassVar[int] = 202
    topic: str


class QueryTopicConsumeByWho(Request, kw_only=True, frozen=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): get the groups that consume a topic."""

    code: ClassVar[int] = 300
    topic: str


class GetSystemTopicListFromBroker(Request, kw_only=True, frozen=True):
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): get the broker's own topics."""

    code: ClassVar[int] = 305


# -- history and undo; the commands are history, stateAt and undo ---------------------------------


class GetControlEvents(Request, kw_only=True, frozen=True):
    """GET_CONTROL_EVENTS (30010): get control events from an offset of the control topic on."""

    code: ClassVar[int] = 30010
    from_offset: Int64
    max_count: Int32


class GetControlEventsResponse(Response, kw_only=True, frozen=True):
    """The next offset and the bounds of the control topic; the body is a JSON array of the events.

    Events below `min_offset` are no longer in the log; GET_HISTORY has them. If it is above
    `from_offset`, the body begins at `min_offset`.
    """

    next_offset: Int64
    max_offset: Int64
    min_offset: Int64 = 0


class GetHistory(Request, kw_only=True, frozen=True):
    """GET_HISTORY (30011): get control events, the newest first.

    `aggregate` is kind/name, like topic/orders; empty means all, without ProgressRecorded unless it
    is among the types. `before_offset` and `until_ms` exclude later events, `types` events of other
    types.
    """

    code: ClassVar[int] = 30011
    aggregate: str = ""
    before_offset: Int64 | None = None
    until_ms: Int64 | None = None
    types: list[str] = []
    max_count: Int32


class GetHistoryResponse(Response, kw_only=True, frozen=True):
    """The body is a JSON array of events (kourou.protocol.bodies.broker_bodies).

    `before_offset` requests the next page, None after the last; events below `begin_offset` are
    lost; `end_offset` is the number of events searched.
    """

    before_offset: Int64 | None = None
    begin_offset: Int64 = 0
    end_offset: Int64


class GetStateAt(Request, kw_only=True, frozen=True):
    """GET_STATE_AT (30012): get the state at a time or after an event; now, if neither is given.

    `aggregate` is topic/…, group/…, setting/… or progress/…; empty for everything.
    """

    code: ClassVar[int] = 30012
    aggregate: str = ""
    at_ms: Int64 | None = None
    offset: Int64 | None = None


class GetStateAtResponse(Response, kw_only=True, frozen=True):
    """The body is the state as JSON; null for what did not exist.

    It is the state after the events below `next_offset`, the last of which was at `at_ms`.
    """

    next_offset: Int64
    at_ms: Int64
    begin_offset: Int64 = 0


class Undo(Request, kw_only=True, frozen=True):
    """UNDO (30013): undo the event at `offset` by a new event.

    `force` undoes it although the value has changed since, or messages would be lost.
    """

    code: ClassVar[int] = 30013
    offset: Int64
    reason: str = ""
    force: bool = False


class UndoResponse(Response, kw_only=True, frozen=True):
    """The events [first_offset, next_offset) were recorded for it; the body is a JSON array."""

    first_offset: Int64
    next_offset: Int64


# -- access accounts kept at brokers, as in RocketMQ's plain ACL ----------------------------------


class UpdateAndCreateAclConfig(Request, kw_only=True, frozen=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50): put an account; permissions are `name=PERM,name=PERM`."""

    code: ClassVar[int] = 50
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(access_key={self.access_key!r}, …)"


class DeleteAclConfig(Request, kw_only=True, frozen=True):
    """DELETE_ACL_CONFIG (51): delete an account."""

    code: ClassVar[int] = 51
    access_key: str


class GetBrokerClusterAclInfo(Request, kw_only=True, frozen=True):
    """GET_BROKER_CLUSTER_ACL_INFO (52): get the version of a broker's accounts."""

    code: ClassVar[int] = 52


class GetBrokerClusterAclInfoResponse(Response, kw_only=True, frozen=True):
    """The version of this broker's accounts."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None


class UpdateGlobalWhiteAddrsConfig(Request, kw_only=True, frozen=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): set the addresses that need no account."""

    code: ClassVar[int] = 53
    global_white_addrs: str
    acl_file_full_path: str | None = None
