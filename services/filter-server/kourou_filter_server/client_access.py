"""Asks the broker whether a client may send a request, and reports what is refused without it.

    request arrives    CHECK_ACCESS with the request and everything that may prove who sends it
    allowed            it is handled; its requests to the broker have this filter server's rights
    refused            the client gets the code and the text of the broker's refusal
    nothing decided    (no users, or mode off) requests that come that way are handled for KEEP_MS
    no answer          SERVICE_NOT_AVAILABLE

A filter server has neither users nor their secrets, because it runs the code of strangers.

Invariants:
- no request is handled unless the broker has allowed it, or one of the same sender by the same
  protocol, for the same group and topic, at most KEEP_MS ago
- only a pull without a signature is allowed by the answer to another one: a signature belongs to
  one request, and what changes something is noted for the audit each time
- an answer of a former connection to the broker does not count, nor one from before rights changed:
  the broker notifies of that, and pulls that wait for messages then end and are decided again
- as long as nothing is decided, requests that come the same way wait for one answer

What pulls return is counted by what proves who sends them, by group and by topic, also if the
connection closes. The next request to the broker about them takes it along: the broker charges it
to the client's quotas if it allows the request, else it is counted on.

What this filter server refuses without the broker, filters from other machines, is counted by kind
and reported once a second (REPORT_REFUSALS), for the broker's audit. If the broker is away, it is
reported later.

State: soft, bounded: answers that count, requests that wait for one, what pulls returned since, and
refusals to report.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from kourou.access.model import ANONYMOUS
from kourou.authorization.audit import OwnRefusals
from kourou.errors import Code
from kourou.model.limits import FILTER_SOURCE_BYTES_MAX, HEADER_SIZE_BYTES_MAX
from kourou.protocol.bodies.access_bodies import encode_reported
from kourou.protocol.messages.access import ReportRefusals
from kourou.protocol.messages.filter_server import CheckAccess, CheckAccessResponse
from kourou.protocol.messages.pulls import PullMessage
from kourou.runtime import DOORS, LogWarning, Peer, Received, Reply
from kourou_filter_server.context import CoreContext, ServerPolicy, trouble_of
from kourou_filter_server.interface import BrokerAnswered
from kourou_filter_server.pulls import LEAVING, nowhere

KEEP_MS = 1_000
"""How long after its request to the broker an answer that allows something counts."""

ANSWERS_KEPT = 4_096

FETCHES_KEPT = 16_384
"""Senders, groups and topics whose messages are counted; beyond, the oldest are forgotten."""

REPORT_MS, REPORT_RETRY_MS = 1_000, 10_000
"""The intervals between reports of refusals, and after one that failed."""

_REPORTS_REFUSED = frozenset({Code.NO_PERMISSION, Code.REQUEST_CODE_NOT_SUPPORTED})
"""With these codes a broker does not take reports; with others it may take the next one."""

Key = tuple[object, ...]
Amounts = tuple[int, int]
"""Bytes and messages."""


@dataclass(slots=True, eq=False)
class _PendingDecision:
    """A request to the broker about `first`; `waiting` are the requests that wait for its answer.

    `key` is what they have in common, None if it is about one request only. `fetched` is what the
    request asks the broker to charge.
    """

    first: Received
    key: Key | None
    asked_ms: int
    waiting: list[Received]
    fetched: Amounts


class ClientAccess:
    """Decides requests of clients by the broker's answers. `handle` gets those that are allowed."""

    def __init__(
        self, context: CoreContext, policy: ServerPolicy, handle: Callable[[Received], None]
    ) -> None:
        self._context = context
        self._policy = policy
        self._handle = handle
        self._until_ms: dict[Key, int] = {}
        self._decided: set[Key] = set()
        self._by_token: dict[int, _PendingDecision] = {}
        self._pending: dict[Key, _PendingDecision] = {}
        self._fetched: OrderedDict[Key, Amounts] = OrderedDict()
        self._count = 0
        self._failing = False

    def __len__(self) -> int:
        return self._count

    def decide(self, received: Received) -> None:
        """Handle a request if it is allowed; else reply with the refusal. Both may be later."""
        path = _access_path(received)
        key = _pull_key(received) if path in self._decided else path
        if key is not None and self._context.now_ms < self._until_ms.get(key, 0):
            self._allow(received)
        elif self._count >= self._policy.pulls_max:
            text = "too many requests are waiting at this filter server"
            self._refuse(received, Code.SYSTEM_BUSY, text)
        elif key in self._pending and key is not None:
            self._pending[key].waiting.append(received)
            self._count += 1
        else:
            self._ask(received, key)

    def fetched(self, received: Received, size: int, messages: int) -> None:
        """Count what a pull returned, where requests are decided; `size` is in bytes."""
        key = _fetch_key(received)
        if key is None or _access_path(received) not in self._decided:
            return
        sizes, counts = self._fetched.pop(key, (0, 0))
        self._fetched[key] = sizes + size, counts + messages
        if len(self._fetched) > FETCHES_KEPT:
            self._fetched.popitem(last=False)

    def _ask(self, received: Received, key: Key | None) -> None:
        size = sum(map(len, received.body))
        if size > FILTER_SOURCE_BYTES_MAX:
            text = f"the body has {size} bytes; a filter server takes {FILTER_SOURCE_BYTES_MAX}"
            self._refuse(received, Code.SYSTEM_ERROR, text)
            return
        try:
            request = _check_request(received)
            too_long = len(msgspec.msgpack.encode(request)) > HEADER_SIZE_BYTES_MAX
        except ValueError:  # half of a surrogate pair
            too_long = True
        if too_long:
            text = "the header is too long, or is not valid text, so it cannot be decided"
            self._refuse(received, Code.SYSTEM_ERROR, text)
            return
        body = (b"".join(received.body),) if size else ()
        fetch = _fetch_key(received)
        fetched = (0, 0) if fetch is None else self._fetched.pop(fetch, (0, 0))
        if any(fetched):
            request = msgspec.structs.replace(
                request, fetched_bytes=fetched[0], fetched_messages=fetched[1]
            )
        pending = _PendingDecision(received, key, self._context.now_ms, [received], fetched)
        token = self._context.ask(request, self._answered, body=body, to=received.to)
        self._by_token[token] = pending
        if key is not None:
            self._pending[key] = pending
        self._count += 1

    # -- the broker's answer ----------------------------------------------------------------------

    def _answered(self, answer: BrokerAnswered) -> None:
        pending = self._by_token.pop(answer.token)
        if pending.key is not None:
            del self._pending[pending.key]
        self._count -= len(pending.waiting)
        header = answer.header
        if any(pending.fetched) and not _is_charged(answer):
            self.fetched(pending.first, *pending.fetched)
        if answer.error is None and answer.code == Code.FLOW_CONTROL:
            self._failing = False
            self._refuse_all(self._requests_of(pending), answer.code, answer.remark, header)
        elif trouble_of(answer) or not isinstance(header, CheckAccessResponse):
            self._not_decided(pending, trouble_of(answer) or "its reply has no decision")
        elif header.undecided:
            self._failing = False
            path = _access_path(pending.first)
            self._decided.discard(path)
            self._keep(path, pending.asked_ms)
            self._allow_all(pending.waiting)
        else:
            self._failing = False
            concerned = self._requests_of(pending)
            if header.refusal:
                self._refuse_all(concerned, header.refusal, header.text)
                return
            if (pull := _pull_key(pending.first)) is not None:
                self._keep(pull, pending.asked_ms)
            for received in concerned:
                if received.to.signed is not None:
                    received.user = received.to.signed.access_key
            self._allow_all(concerned)

    def _requests_of(self, pending: _PendingDecision) -> Sequence[Received]:
        """Return the requests that a decision is about; the others are decided by their own.

        They waited because nothing was decided so far, whatever client sent them.
        """
        path = _access_path(pending.first)
        self._decided.add(path)
        if pending.key != path:
            return pending.waiting
        for other in pending.waiting:
            if other is not pending.first:
                self.decide(other)
        return [one for one in pending.waiting if one is pending.first]

    def _not_decided(self, pending: _PendingDecision, trouble: str) -> None:
        warning = LogWarning(
            "client-decisions-missing: the broker of this filter server does not decide about its "
            "clients: %(error)s",
            {"error": trouble},
        )
        if not self._failing:
            self._failing = True
            self._context.do(warning)
        self._refuse_all(pending.waiting, Code.SERVICE_NOT_AVAILABLE, warning.sentence)

    def _keep(self, key: Key, asked_ms: int) -> None:
        if len(self._until_ms) >= ANSWERS_KEPT:
            self._until_ms.clear()
        self._until_ms[key] = asked_ms + KEEP_MS

    # -- what follows for requests ----------------------------------------------------------------

    def _allow(self, received: Received) -> None:
        received.to.drop_signed()
        self._handle(received)

    def _allow_all(self, waiting: Iterable[Received]) -> None:
        for received in waiting:
            self._allow(received)

    def _refuse(
        self, received: Received, code: int, text: str, header: msgspec.Struct | None = None
    ) -> None:
        if header is None and isinstance(received.request, PullMessage):
            header = nowhere()
        self._context.do(Reply(received.to, code, text, header))

    def _refuse_all(
        self,
        waiting: Iterable[Received],
        code: int,
        text: str,
        header: msgspec.Struct | None = None,
    ) -> None:
        for received in waiting:
            self._refuse(received, code, text, header)

    # -- connections ------------------------------------------------------------------------------

    def rights_changed(self) -> None:
        """Forget all answers that allowed something: the broker may answer otherwise now."""
        self._until_ms.clear()

    def broker_found(self) -> None:
        """Forget all answers: they are of a former connection to the broker."""
        self._until_ms.clear()
        self._decided.clear()

    def disconnected(self, peer: Peer) -> None:
        """Drop the requests of a closed connection."""
        for pending in self._by_token.values():
            left = [one for one in pending.waiting if one.to.peer.id != peer.id]
            self._count -= len(pending.waiting) - len(left)
            pending.waiting = left

    def leave(self) -> None:
        """Reply to all that wait, because this filter server ends."""
        for token, pending in self._by_token.items():
            self._context.forget(token)
            self._refuse_all(pending.waiting, Code.SERVICE_NOT_AVAILABLE, LEAVING)
        self._by_token.clear()
        self._pending.clear()
        self._count = 0


def _access_path(received: Received) -> Key:
    """Return how a request comes here, on which the broker's mode depends."""
    return received.to.peer.protocol, bool(received.on_behalf_of)


def _pull_key(received: Received) -> Key | None:
    """Return what decides a pull that is not signed; None for all other requests."""
    request, to = received.request, received.to
    if to.signed is not None or not isinstance(request, PullMessage):
        return None
    peer = to.peer
    sender = peer.protocol, peer.address[0], peer.key, peer.subject, received.on_behalf_of
    return *sender, to.version, request.consumer_group, request.topic


def _fetch_key(received: Received) -> Key | None:
    """Return by what messages of a pull are counted; None for all other requests.

    It has all that its user follows from. The user of an allowed request with a signature is known.
    """
    request, to = received.request, received.to
    if not isinstance(request, PullMessage):
        return None
    signer = received.user if to.signed is None else to.signed.access_key
    sender = to.peer.protocol, to.peer.key, to.peer.subject, received.on_behalf_of, signer
    return *sender, request.consumer_group, request.topic


def _is_charged(answer: BrokerAnswered) -> bool:
    """Return whether the broker charged what pulls returned: not for a request that it refused."""
    if answer.error is None and answer.code == Code.FLOW_CONTROL:
        return True
    header = answer.header
    return not trouble_of(answer) and isinstance(header, CheckAccessResponse) and not header.refusal


def _check_request(received: Received) -> CheckAccess:
    """Return the request to the broker. Raises ValueError if it cannot be encoded."""
    request, to = received.request, received.to
    signed, peer = to.signed, to.peer
    return CheckAccess(
        request_code=request.code,
        header=msgspec.msgpack.encode(request),
        protocol=peer.protocol,
        address=peer.address[0],
        version=to.version,
        key=peer.key,
        subject=peer.subject,
        on_behalf_of=received.on_behalf_of,
        signed=None if signed is None else signed.fields(),
    )


class RefusalReports:
    """Has what this filter server refuses itself noted in the audit of its broker."""

    def __init__(self, context: CoreContext) -> None:
        self._context = context
        self._refusals = OwnRefusals()
        self._asking = False
        self._next_ms = 0

    def note(self, received: Received, why: str) -> None:
        """Count a request of a client that has proved nothing."""
        peer = received.to.peer
        request = type(received.request).__name__
        self._refusals.note(ANONYMOUS, peer.address[0], request, why, door=DOORS.get(peer.protocol))

    def tick(self) -> None:
        """Report what was counted, if it is time to."""
        now_ms = self._context.now_ms
        if self._asking or not len(self._refusals) or now_ms < self._next_ms:
            return
        taken = self._refusals.take()

        def answered(answer: BrokerAnswered) -> None:
            self._asking = False
            failed = bool(trouble_of(answer))
            if failed and answer.code not in _REPORTS_REFUSED:
                self._refusals.put_back(taken)
            self._next_ms = self._context.now_ms + (REPORT_RETRY_MS if failed else REPORT_MS)

        self._asking = True
        self._context.ask(ReportRefusals(), answered, body=(encode_reported(taken),))

    def leave(self) -> None:
        """Report the last ones, because this filter server ends."""
        self._next_ms = 0
        self.tick()
