"""Requests from this broker to its clients, its own or forwarded from an operator.

A request ends exactly once, and its callback is called once: with the client's reply, whatever its
code; with TimedOut after its timeout; with UnknownOutcome if the connection is closed.

State: soft. Requests that are open at a crash have no outcome. A caller that sends one on behalf of
another request leaves that request to its own deadline.

Invariants:
- a token identifies one request, and only the peer that received the request can reply to it
- at most CLIENT_QUESTIONS_MAX requests are open
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.groups.membership import GroupClient
from kourou.errors import (
    BadRequest,
    Code,
    GroupNotFound,
    KourouError,
    Rejected,
    Throttled,
    TimedOut,
    UnknownOutcome,
)
from kourou.model.limits import CLIENT_QUESTIONS_MAX
from kourou.protocol.bodies.status_bodies import (
    ConsumerStatus,
    decode_consumer_status,
    encode_consumer_status,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
    InvokeBrokerToGetConsumerStatus,
)
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.request import Request
from kourou.runtime import AskClient, Buffer, ClientAnswered, LogWarning, Peer, Received, Reply

Answered = Callable[[int, ClientAnswered], Sequence[Effect]]
"""(now_ms, answer) -> effects. The answer's `error` is None if the client replied."""

TOKENS = 2**31 - 1
"""A remoting frame's correlation ID has 31 usable bits; ZeroMQ's could be larger."""


@dataclass(slots=True)
class _OpenRequest:
    peer: Peer
    request: Request
    answered: Answered


class ClientRequests:
    """The open requests. Times are monotonic ms."""

    __slots__ = ("_by_peer", "_deadlines", "_last_token", "_open")

    def __init__(self) -> None:
        self._last_token = 0
        self._open: dict[int, _OpenRequest] = {}
        self._by_peer: dict[int, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._open)

    def ask(
        self,
        now_ms: int,
        peer: Peer,
        request: Request,
        body: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
        answered: Answered,
    ) -> list[Effect]:
        """Send a request to a client; `answered` gets its outcome, in this or a later tick.

        Raises Throttled while too many requests are open; then nothing is sent.
        """
        if len(self._open) >= CLIENT_QUESTIONS_MAX:
            raise Throttled(
                f"{CLIENT_QUESTIONS_MAX} requests to clients are in progress already, the "
                "maximum; retry in a moment"
            )
        token = self._last_token % TOKENS + 1
        while token in self._open:
            token = token % TOKENS + 1
        self._last_token = token
        self._open[token] = _OpenRequest(peer, request, answered)
        self._by_peer.setdefault(peer.id, {})[token] = None
        heappush(self._deadlines, (now_ms + timeout_ms, token))
        return [AskClient(token, peer, request, body, timeout_ms)]

    def answered(self, now_ms: int, item: ClientAnswered) -> list[Effect]:
        """Handle a client's reply, or a failure to send; without an open request, drop it."""
        question = self._open.get(item.token)
        if question is None or question.peer.id != item.peer.id:
            return []
        return self._end(now_ms, item)

    def expire(self, now_ms: int) -> list[Effect]:
        """End the requests whose deadline has passed with TimedOut."""
        effects: list[Effect] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            _, token = heappop(deadlines)
            question = self._open.get(token)
            if question is not None:
                late = TimedOut(f"{question.peer} did not respond in time")
                effects += self._fail(now_ms, token, question, late)
        return effects

    def drop_peer(self, now_ms: int, peer: Peer) -> list[Effect]:
        """End the requests to this peer, because a closed connection brings no reply."""
        effects: list[Effect] = []
        for token in list(self._by_peer.get(peer.id, ())):
            gone = UnknownOutcome(f"the connection to {peer} closed before it replied")
            effects += self._fail(now_ms, token, self._open[token], gone)
        return effects

    def _fail(
        self, now_ms: int, token: int, question: _OpenRequest, error: KourouError
    ) -> list[Effect]:
        return self._end(now_ms, ClientAnswered(token, question.peer, error=error))

    def _end(self, now_ms: int, item: ClientAnswered) -> list[Effect]:
        question = self._open.pop(item.token)
        tokens = self._by_peer[question.peer.id]
        del tokens[item.token]
        if not tokens:
            del self._by_peer[question.peer.id]
        if not self._open:
            self._deadlines.clear()  # the rest are deadlines of finished requests
        try:
            return list(question.answered(now_ms, item))
        except KourouError as error:
            # The requester is gone or cannot record the reply now; the broker continues.
            return [
                LogWarning(
                    "client-reply-lost: the reply of %(peer)s to %(request)s had no effect: "
                    "%(error)s",
                    {
                        "peer": question.peer,
                        "request": type(question.request).__name__,
                        "error": error,
                    },
                )
            ]


PASS_ON_MS = 10_000
"""How long a consumer has to reply to 307 and 309, as in RocketMQ."""

STATUS_MS = 5_000


class ClientRequestHandler:
    """Forwards requests to consumers.

    State: soft: the pending requests. The operator gets exactly one reply, once the last of the
    consumers has replied or failed.
    """

    def __init__(self, context: BrokerContext, client_requests: ClientRequests) -> None:
        self._members = context.members
        self._client_requests = client_requests
        self._view = context.view
        self._confirmations = context.confirmations
        self._policy = context.policy

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            GetConsumerRunningInfo: self.running_info,
            ConsumeMessageDirectly: self.consume_directly,
            InvokeBrokerToGetConsumerStatus: self.status,
        }

    # -- one consumer -------------------------------------------------------------------------

    def running_info(
        self, now_ms: int, received: Received, request: GetConsumerRunningInfo
    ) -> list[Effect]:
        """Forward a request for a consumer's queues, rates and settings (307)."""
        peer = self._peer(request.consumer_group, request.client_id)
        return self._pass_on(now_ms, received, peer, request)

    def consume_directly(
        self, now_ms: int, received: Received, request: ConsumeMessageDirectly
    ) -> list[Effect]:
        """Make a consumer consume one stored message now (309).

        `msg_id` is an offset message ID of this broker. Without a client ID, the consumer that was
        heard from last gets the message. The group's offsets do not change.
        """
        if not request.msg_id:
            raise BadRequest("msgId is missing: give the ID of the message to consume")
        peer = self._peer(request.consumer_group, request.client_id or "")
        _, position = decode_offset_id(request.msg_id)
        if not 0 <= position < self._confirmations.confirmed:
            raise Rejected(f"this broker's log has no message at position {position}")
        record = self._view.record_at(position)
        question = ConsumeMessageDirectly(
            consumer_group=request.consumer_group,
            client_id=request.client_id,
            msg_id=request.msg_id,
            broker_name=self._policy.broker_name,
            topic=request.topic,
            topic_sys_flag=request.topic_sys_flag,
            group_sys_flag=request.group_sys_flag,
        )
        return self._pass_on(now_ms, received, peer, question, (record,))

    def _peer(self, group: str, client_id: str) -> Peer:
        if client_id:
            peer = self._members.consumer_peer(group, client_id)
        else:
            members = self._members.consumers(group)
            peer = members[-1].peer if members else None
        if peer is None:
            raise GroupNotFound(
                f"The Consumer <{group}> <{client_id}> not online", code=Code.CONSUMER_NOT_ONLINE
            )
        return peer

    def _pass_on(
        self,
        now_ms: int,
        received: Received,
        peer: Peer,
        request: Request,
        body: Sequence[Buffer] = (),
    ) -> list[Effect]:
        def answered(_now_ms: int, item: ClientAnswered) -> list[Effect]:
            if item.error is not None:
                return [_unanswered(received, item.error)]
            if item.code == Code.SUCCESS:
                return [Reply(received.to, Code.SUCCESS, item.remark, body=item.body)]
            remark = item.remark or f"the consumer replied with code {item.code}"
            return [Reply(received.to, Code.SYSTEM_ERROR, remark, body=item.body)]

        timeout_ms = _time_left(now_ms, received, PASS_ON_MS)
        return self._client_requests.ask(
            now_ms, peer, request, body, timeout_ms=timeout_ms, answered=answered
        )

    # -- all consumers ------------------------------------------------------------------------

    def status(
        self, now_ms: int, received: Received, request: InvokeBrokerToGetConsumerStatus
    ) -> list[Effect]:
        """Reply with the offsets of each consumer of a group in a topic, by client ID (223).

        With `client_addr`, only that client is asked.
        """
        members = _latest(self._members.consumers(request.group), request.client_addr or "")
        if not members:
            raise GroupNotFound(
                f"No Any Consumer online in the consumer group: [{request.group}]",
                code=Code.CONSUMER_NOT_ONLINE,
            )
        collector = _StatusCollector(received, len(members))
        effects: list[Effect] = []
        question = GetConsumerStatusFromClient(topic=request.topic, group=request.group)
        timeout_ms = _time_left(now_ms, received, STATUS_MS)
        for member in members:
            try:
                effects += self._client_requests.ask(
                    now_ms,
                    member.peer,
                    question,
                    timeout_ms=timeout_ms,
                    answered=collector.of(member.client_id),
                )
            except KourouError as error:  # too many requests: leave this consumer out
                effects += collector.add(member.client_id, None, str(error))
        return effects


class _StatusCollector:
    """Collects the replies of several consumers to one operator's request."""

    def __init__(self, received: Received, left: int) -> None:
        self._received = received
        self._left = left
        self._found = ConsumerStatus()
        self._silent: list[str] = []

    def of(self, client_id: str) -> Callable[[int, ClientAnswered], list[Effect]]:
        """Return the callback for this consumer's reply."""

        def answered(_now_ms: int, item: ClientAnswered) -> list[Effect]:
            if item.error is not None:
                return self.add(client_id, None, str(item.error))
            if item.code != Code.SUCCESS:
                return self.add(client_id, None, item.remark or f"code {item.code}")
            try:
                status = decode_consumer_status(b"".join(item.body) or b"{}")
            except KourouError as error:
                return self.add(client_id, None, str(error))
            return self.add(client_id, status, "")

        return answered

    def add(self, client_id: str, status: ConsumerStatus | None, problem: str) -> list[Effect]:
        """Add one outcome. After the last, the operator gets the reply, with failures as remark."""
        if status is None:
            self._silent.append(f"{client_id}: {problem}")
        else:
            self._found.members[client_id] = status.queues
        self._left -= 1
        if self._left:
            return []
        remark = "; ".join(self._silent)
        if not self._found.members:
            code = Code.CONSUME_MSG_TIMEOUT
            warning = LogWarning("consumer-status-missing: %(reasons)s", {"reasons": remark})
            return [Reply(self._received.to, code, remark), warning]
        body = encode_consumer_status(self._found)
        return [Reply(self._received.to, Code.SUCCESS, remark, body=(body,))]


def _latest(members: Sequence[GroupClient], client_id: str) -> list[GroupClient]:
    """Return each client once, by the connection it was heard from last; or only one client."""
    found = {member.client_id: member for member in members}
    return [member for name, member in found.items() if client_id in ("", name)]


def _time_left(now_ms: int, received: Received, most_ms: int) -> int:
    """Return the timeout, at most the time that the requester itself still waits."""
    if not received.deadline_ms:
        return most_ms
    return max(1, min(most_ms, received.deadline_ms - now_ms))


def _unanswered(received: Received, error: KourouError) -> Reply:
    late = isinstance(error, TimedOut)
    code = Code.CONSUME_MSG_TIMEOUT if late else Code.SYSTEM_ERROR
    return Reply(received.to, code, str(error))
