"""Handlers for brokers' requests about the client's consumers."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from kourou.client.introspection.broker_requests import Answer, Answering, Asked
from kourou.client.introspection.running_info import DirectResult as Handled
from kourou.client.introspection.running_info import QueueInfo, RunningInfo
from kourou.client.session.heartbeats import Membership
from kourou.errors import BadRequest, Code, GroupNotFound
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import (
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStatus,
    DirectResult,
    ProcessQueueInfo,
    encode_consumer_running_info,
    encode_consumer_status,
    encode_direct_result,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from kourou.version import __version__

MIB = 1024 * 1024


class Asks(Protocol):
    """The part of a consumer that these requests need. A pull consumer has no more than this."""

    @property
    def membership(self) -> Membership:
        """The membership that heartbeats contain."""
        ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets that the consumer would commit for each queue of a topic."""
        ...


class Pushed(Asks, Protocol):
    """A consumer with handlers."""

    def running_info(self) -> RunningInfo:
        """Return the consumer's running state."""
        ...

    async def consume_directly(self, record: bytes) -> Handled:
        """Process this record now."""
        ...


class MemberAnswers:
    """Replies for all consumers of a client. `find(group)` returns a group's consumer, or None.

    `name_servers()` returns the addresses of the name servers, joined by `;`.
    """

    def __init__(
        self, find: Callable[[str], Asks | None], name_servers: Callable[[], str], client_id: str
    ) -> None:
        self._find = find
        self._name_servers = name_servers
        self._client_id = client_id

    def register(self, answering: Answering) -> None:
        """Register the request handlers."""
        answering.on(GetConsumerStatusFromClient, self._status)
        answering.on(GetConsumerRunningInfo, self._running_info)
        answering.on(ConsumeMessageDirectly, self._consume)

    def _member(self, group: str) -> Asks:
        member = self._find(group)
        if member is None:
            raise GroupNotFound(
                f"client {self._client_id} has no consumer in group {group}",
                code=Code.SYSTEM_ERROR,
            )
        return member

    def _pushed(self, group: str, what: str) -> Pushed:
        member = self._member(group)
        if not hasattr(member, "running_info"):
            raise BadRequest(f"a pull consumer {what}", hint="choose a push consumer")
        return member  # type: ignore[return-value]  # what has running_info has all of Pushed

    async def _status(self, asked: Asked) -> Answer:
        request = asked.request
        assert isinstance(request, GetConsumerStatusFromClient)
        queues = self._member(request.group).status(request.topic)
        return Answer(body=(encode_consumer_status(ConsumerStatus(queues)),))

    async def _running_info(self, asked: Asked) -> Answer:
        request = asked.request
        assert isinstance(request, GetConsumerRunningInfo)
        member = self._pushed(request.consumer_group, "does not report its running state")
        info = member.running_info()
        told = ConsumerRunningInfo(
            properties=self._properties(member, info),
            subscriptions=info.subscriptions,
            queues={queue: process_queue(one) for queue, one in info.queues.items()},
            rates={
                topic: ConsumeStatus(
                    consume_failed_msgs=one.consume_failed_msgs,
                    consume_failed_tps=one.consume_failed_tps,
                    consume_ok_tps=one.consume_ok_tps,
                    consume_rt=one.consume_rt,
                    pull_rt=one.pull_rt,
                    pull_tps=one.pull_tps,
                )
                for topic, one in info.statuses.items()
            },
            jstack=stacks() if request.jstack_enable else None,
        )
        return Answer(body=(encode_consumer_running_info(told),))

    def _properties(self, member: Pushed, info: RunningInfo) -> dict[str, str]:
        """Return the properties; RocketMQ's names, which its tools read, override the settings'."""
        return {
            "PROP_CONSUMEORDERLY": "false",
            **info.properties,
            "PROP_NAMESERVER_ADDR": self._name_servers(),
            "PROP_CONSUME_TYPE": member.membership.consume_type.value,
            "PROP_CLIENT_VERSION": f"KOUROU_{__version__.replace('.', '_')}",
            "PROP_CONSUMER_START_TIMESTAMP": str(info.started_ms),
        }

    async def _consume(self, asked: Asked) -> Answer:
        request = asked.request
        assert isinstance(request, ConsumeMessageDirectly)
        member = self._pushed(
            request.consumer_group, "has no handler, so it cannot consume a message directly"
        )
        handled = await member.consume_directly(b"".join(asked.body))
        result = DirectResult(
            order=handled.order,
            consume_result=handled.result,
            remark=handled.remark or None,
            spent_time_mills=handled.spent_ms,
        )
        return Answer(body=(encode_direct_result(result),))


def process_queue(info: QueueInfo) -> ProcessQueueInfo:
    """Return one queue in RocketMQ's form, in which missing offsets are 0."""
    return ProcessQueueInfo(
        cached_msg_count=info.cached_count,
        cached_msg_max_offset=max(info.cached_max_offset, 0),
        cached_msg_min_offset=max(info.cached_min_offset, 0),
        cached_msg_size_in_mi_b=info.cached_size_bytes // MIB,
        commit_offset=info.commit_offset,
        droped=info.dropped,
        last_consume_timestamp=info.last_consume_ms,
        last_pull_timestamp=info.last_pull_ms,
        locked=info.locked,
    )


def stacks() -> str:
    """Return the stack of every thread of this process, as RocketMQ's `jstack` does."""
    frames = sys._current_frames()  # the documented function, despite its name
    lines: list[str] = []
    for thread in sorted(threading.enumerate(), key=lambda one: one.name):
        frame = frames.get(thread.ident or 0)
        lines.append(f"{thread.name} TID: {thread.ident}\n")
        if frame is not None:
            lines += traceback.format_stack(frame)
        lines.append("\n")
    return "".join(lines)
