"""What a client answers when a broker asks one of its consumers something."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from kourou.client.answering import Answer, Answering, Asked
from kourou.client.heartbeats import Membership
from kourou.client.running_info import DirectResult as Handled
from kourou.client.running_info import QueueInfo, RunningInfo
from kourou.errors import BadRequest, Code, GroupNotFound
from kourou.model.queue import MessageQueue
from kourou.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStatus,
    DirectResult,
    ProcessQueueInfo,
    encode_consumer_running_info,
    encode_consumer_status,
    encode_direct_result,
)
from kourou.protocol.messages.membership import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from kourou.version import __version__

MIB = 1024 * 1024


class Asks(Protocol):
    """A consumer, as much as a question needs of it. A pull consumer knows less."""

    @property
    def membership(self) -> Membership:
        """What brokers are told of it."""
        ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """What it would commit of each queue of a topic."""
        ...


class Pushed(Asks, Protocol):
    """A consumer with handlers."""

    def running_info(self) -> RunningInfo:
        """How it runs."""
        ...

    async def consume_directly(self, record: bytes) -> Handled:
        """Handle this record now."""
        ...


class MemberAnswers:
    """Answers for all consumers of a client. `find(group)` gives the one of a group, or None.

    `name_servers()` are the addresses of the name servers, joined by `;`.
    """

    def __init__(
        self, find: Callable[[str], Asks | None], name_servers: Callable[[], str], client_id: str
    ) -> None:
        self._find = find
        self._name_servers = name_servers
        self._client_id = client_id

    def register(self, answering: Answering) -> None:
        """Answer from now on."""
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
        """RocketMQ's own names lie over the settings'; its tools read these."""
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
    """One queue in RocketMQ's form, in which offsets of nothing are 0."""
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
    """What every thread of this process is doing: the counterpart of RocketMQ's `jstack`."""
    frames = sys._current_frames()  # the documented place, whatever its name says
    lines: list[str] = []
    for thread in sorted(threading.enumerate(), key=lambda one: one.name):
        frame = frames.get(thread.ident or 0)
        lines.append(f"{thread.name} TID: {thread.ident}\n")
        if frame is not None:
            lines += traceback.format_stack(frame)
        lines.append("\n")
    return "".join(lines)
