"""Headers of topics at a broker."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Request


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
