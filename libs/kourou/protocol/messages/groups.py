"""Headers of groups and clients: configuration, heartbeats, connections, consumers, queue locks."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Request


class UpdateAndCreateSubscriptionGroup(Request, kw_only=True, frozen=True):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): create or change the group in the body."""

    code: ClassVar[int] = 200
    reason: str = ""  # the reason, for the history


class GetAllSubscriptionGroupConfig(Request, kw_only=True, frozen=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): get the configuration of every group."""

    code: ClassVar[int] = 201


class DeleteSubscriptionGroup(Request, kw_only=True, frozen=True):
    """DELETE_SUBSCRIPTIONGROUP (207): delete a group, and its progress if `remove_offset`."""

    code: ClassVar[int] = 207
    group_name: str
    remove_offset: bool = False
    reason: str = ""  # the reason, for the history


class GetConsumeStats(Request, kw_only=True, frozen=True):
    """GET_CONSUME_STATS (208): get a group's offsets and the ends of its queues."""

    code: ClassVar[int] = 208
    consumer_group: str
    topic: str | None = None


class QueryConsumeTimeSpan(Request, kw_only=True, frozen=True):
    """QUERY_CONSUME_TIME_SPAN (303): get first, last and consumed store times by queue."""

    code: ClassVar[int] = 303
    topic: str
    group: str


class GetBrokerConsumeStats(Request, kw_only=True, frozen=True):
    """GET_BROKER_CONSUME_STATS (317): get GET_CONSUME_STATS of all groups at once."""

    code: ClassVar[int] = 317
    is_order: bool = False


# -- clients and their groups: heartbeats, connections, running information -----------------------


class HeartBeat(Request, kw_only=True, frozen=True):
    """HEART_BEAT (34): a client's heartbeat; the body has its groups and subscriptions."""

    code: ClassVar[int] = 34


class UnregisterClient(Request, kw_only=True, frozen=True):
    """UNREGISTER_CLIENT (35): a client leaves a producer or a consumer group."""

    code: ClassVar[int] = 35
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


class GetConsumerListByGroup(Request, kw_only=True, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP (38): get the client ids of a group, for rebalancing."""

    code: ClassVar[int] = 38
    consumer_group: str
    bname: str | None = None


class NotifyConsumerIdsChanged(Request, kw_only=True, frozen=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40, broker to client, oneway): request a rebalance."""

    code: ClassVar[int] = 40
    consumer_group: str


class CheckClientConfig(Request, kw_only=True, frozen=True):
    """CHECK_CLIENT_CONFIG (46): check the subscription in the body."""

    code: ClassVar[int] = 46


class GetConsumerConnectionList(Request, kw_only=True, frozen=True):
    """GET_CONSUMER_CONNECTION_LIST (203): get a consumer group's connections and subscriptions."""

    code: ClassVar[int] = 203
    consumer_group: str


class GetProducerConnectionList(Request, kw_only=True, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST (204): get a producer group's connections."""

    code: ClassVar[int] = 204
    producer_group: str


class GetAllProducerInfo(Request, kw_only=True, frozen=True):
    """GET_ALL_PRODUCER_INFO (328): get the connections of every producer group."""

    code: ClassVar[int] = 328


class GetConsumerStatusFromClient(Request, kw_only=True, frozen=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221, broker to client): get a consumer's offsets."""

    code: ClassVar[int] = 221
    topic: str
    group: str
    client_addr: str | None = None


class InvokeBrokerToGetConsumerStatus(Request, kw_only=True, frozen=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): get the offsets of a group's consumers."""

    code: ClassVar[int] = 223
    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfo(Request, kw_only=True, frozen=True):
    """GET_CONSUMER_RUNNING_INFO (307): get a consumer's queues, rates and settings from it."""

    code: ClassVar[int] = 307
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectly(Request, kw_only=True, frozen=True):
    """CONSUME_MESSAGE_DIRECTLY (309): deliver one message to one consumer now.

    In the request to the broker `msg_id` names the message; in the request to the client the body
    is its record.
    """

    code: ClassVar[int] = 309
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


# -- queue locks for orderly consumption; the bodies have the data --------------------------------


class LockBatchMq(Request, kw_only=True, frozen=True):
    """LOCK_BATCH_MQ (41): lock queues for one client; the reply has the queues that it got."""

    code: ClassVar[int] = 41


class UnlockBatchMq(Request, kw_only=True, frozen=True):
    """UNLOCK_BATCH_MQ (42): release locked queues."""

    code: ClassVar[int] = 42
