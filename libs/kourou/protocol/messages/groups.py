"""Headers of consumer groups at a broker."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Request


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
