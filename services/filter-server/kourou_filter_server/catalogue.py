"""The broker's filters: its last list of them, the registration here, and uploads to it.

    Catalogue           the filters as of the broker's last reply, and whether that is current
    ServerRegistration  registers this server; the broker returns the version of its filters
    ClientUploads       REGISTER_MESSAGE_FILTER_CLASS (302): uploads of RocketMQ's old clients

Nothing is filtered with knowledge from before the current connection to the broker: after a lost
connection, pulls wait for the broker's reply. Between a change and the reply that contains it, the
previous knowledge is used.

A filter server registers over the connection on which it receives notifications; the broker removes
it when that connection closes, or after 30 s of silence.

State: soft. The broker has the filters in its log; old clients upload again with their heartbeats.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kourou.errors import BadRequest, Code, KourouError
from kourou.model.filter import (
    FilterFailure,
    FilterKey,
    FilterPolicy,
    FilterState,
    FilterVersion,
    check_filter_name,
)
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX, FILTER_SOURCE_BYTES_MAX, FILTERS_MAX
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.messages.filter_server import (
    GetFilters,
    GetFiltersResponse,
    PutFilter,
    RegisterFilterServer,
    RegisterFilterServerResponse,
    RegisterMessageFilterClass,
    UnregisterFilterServer,
)
from kourou.protocol.record.layout import masked_crc
from kourou.runtime import LogWarning, Received, Reply
from kourou_filter_server.context import CoreContext, ServerPolicy, trouble_of
from kourou_filter_server.interface import BrokerAnswered

ASK_AGAIN_MS = 1_000
"""The minimum interval between requests about one filter that is missing or must not run."""


class FilterStatus(NamedTuple):
    """Whether a filter may run. If so, `failure` is None, and `version` is to be run."""

    version: FilterVersion | None
    policy: FilterPolicy
    failure: FilterFailure | None = None
    reason: str = ""


class Catalogue:
    """All filters of the broker. `changed` is called after each reply that lists them."""

    def __init__(self, context: CoreContext, changed: Callable[[], None]) -> None:
        self._context = context
        self._changed = changed
        self.version: int | None = None
        self.known = False
        self._filters: dict[FilterKey, FilterState] = {}
        self._own_quarantines: dict[tuple[FilterKey, int], str] = {}
        self._asked_ms: dict[FilterKey, int] = {}
        self._pending = 0
        self._again = False
        self._waiting: list[Callable[[], None]] = []
        self._waiting_for_next: list[Callable[[], None]] = []

    # -- known filters ----------------------------------------------------------------------------

    def status(self, key: FilterKey) -> FilterStatus:
        """Whether this filter may run, as far as this filter server knows."""
        found = self._filters.get(key)
        group, name = key
        if found is None:
            text = f"group {group} has no filter {name}"
            return FilterStatus(None, FilterPolicy.HOLD, FilterFailure.MISSING, text)
        active = None if found.active is None else found.version(found.active)
        if active is None:
            text = f"filter {name} has no active version"
            return FilterStatus(None, found.policy, FilterFailure.DISABLED, text)
        reason = self._quarantine_of(found, active.version)
        if reason is not None:
            text = f"version {active.version} of filter {name} is quarantined: {reason}"
            return FilterStatus(active, found.policy, FilterFailure.QUARANTINED, text)
        return FilterStatus(active, found.policy)

    def is_quarantined(self, key: FilterKey, version: int) -> bool:
        """Whether this version is quarantined, here or at the broker."""
        found = self._filters.get(key)
        return found is not None and self._quarantine_of(found, version) is not None

    def _quarantine_of(self, found: FilterState, version: int) -> str | None:
        own = self._own_quarantines.get((found.key, version))
        return found.quarantined.get(version, own)

    def filters(self) -> list[FilterState]:
        """All known filters."""
        return list(self._filters.values())

    # -- quarantine -------------------------------------------------------------------------------

    def quarantine(self, key: FilterKey, version: int, reason: str) -> None:
        """Quarantine a version here immediately, before the broker has recorded it."""
        self._own_quarantines[key, version] = reason

    def confirmed(self, key: FilterKey, version: int) -> None:
        """The broker has recorded that quarantine; its next list of filters is authoritative."""

        def listed() -> None:
            self._own_quarantines.pop((key, version), None)

        self.ask(listed)

    # -- requests to the broker -------------------------------------------------------------------

    def lost(self) -> None:
        """The connection to the broker was lost or replaced: the known filters may be outdated."""
        self.known = False
        self.version = None  # after a power loss the broker may reuse a version number

    def version_reported(self, version: int) -> None:
        """Process the broker's version number of all filters: request the list if it differs."""
        if version != self.version:
            self.ask()
        else:
            self.known = True

    def ask(self, then: Callable[[], None] | None = None) -> None:
        """Request all filters. `then` is called after the reply to a request sent from now on.

        `then` is called if that request fails, too.
        """
        if self._pending:  # the reply to the pending request may not contain the change
            self._again = True
            if then is not None:
                self._waiting_for_next.append(then)
            return
        if then is not None:
            self._waiting.append(then)
        self._pending = self._context.ask(GetFilters(), self._answered)

    def look_again(self, key: FilterKey, then: Callable[[], None]) -> bool:
        """Request the list because of a filter that cannot run. `then` is called after the reply.

        Returns False, without a request, if there was one for this filter within ASK_AGAIN_MS; the
        caller then retries with the next tick or change.
        """
        asked_ms = self._asked_ms.get(key)
        if asked_ms is not None and self._context.now_ms - asked_ms < ASK_AGAIN_MS:
            return False
        if len(self._asked_ms) >= 4 * FILTERS_MAX:  # bounds the memory for invented filter names
            self._asked_ms.clear()
        self._asked_ms[key] = self._context.now_ms
        self.ask(then)
        return True

    def _answered(self, answer: BrokerAnswered) -> None:
        self._pending = 0
        waiting, self._waiting = self._waiting, []
        trouble = self._take(answer)
        if trouble:
            self._context.do(
                LogWarning(
                    "filters-missing: the broker did not return its filters: %(error)s",
                    {"error": trouble},
                )
            )
        else:
            self.known = True
            self._changed()
        again, self._again = self._again, False
        if again:
            self._waiting, self._waiting_for_next = self._waiting_for_next, []
            self.ask()
        for then in waiting:
            then()

    def _take(self, answer: BrokerAnswered) -> str:
        trouble = trouble_of(answer)
        if trouble:
            return trouble
        assert isinstance(answer.header, GetFiltersResponse)
        try:
            filters = decode_filters(b"".join(answer.body))
        except KourouError as error:
            return str(error)
        self._filters = {one.key: one for one in filters}
        self.version = answer.header.filters_version
        return ""


# -- registration ---------------------------------------------------------------------------------

RETRY_MS = 1_000
"""The delay after a failed registration: short, since both are often started together."""

TIMEOUT_MS = 3_000


class ServerRegistration:
    """Keeps a filter server registered. `listeners`: `carrier:listener` -> consumers' address."""

    def __init__(
        self,
        context: CoreContext,
        policy: ServerPolicy,
        catalogue: Catalogue,
        address: str,
        listeners: Mapping[str, str],
    ) -> None:
        self._context = context
        self._policy = policy
        self._catalogue = catalogue
        self._address = address
        self._listeners = dict(listeners)
        self._next_ms = 0
        self._pending = 0
        self._leaving = False
        self._said = ""
        self.registered = False
        self.broker_name = ""
        #: Whether the broker decided about clients, as of the last registration.
        self.broker_decides = False

    @property
    def trouble(self) -> str:
        """Why it is not registered, as far as is known; "" if it is."""
        return "" if self.registered else self._said or "not registered with the broker yet"

    def found(self) -> None:
        """Register over a new connection: the registration of the previous one is void."""
        self._catalogue.lost()
        self.registered = False
        self._context.forget(self._pending)
        self._pending = 0
        self._next_ms = self._context.now_ms
        self.tick()

    def tick(self) -> None:
        """Register, if it is time to."""
        if self._pending or self._leaving or self._context.now_ms < self._next_ms:
            return
        request = RegisterFilterServer(
            filter_server_addr=self._address, listeners=self._listeners or None
        )
        self._pending = self._context.ask(request, self._answered, timeout_ms=TIMEOUT_MS)

    def _answered(self, answer: BrokerAnswered) -> None:
        self._pending = 0
        header = answer.header
        trouble = trouble_of(answer)
        if not trouble and not isinstance(header, RegisterFilterServerResponse):
            trouble = "it did not return its broker name"
        if trouble:
            if self.registered or trouble != self._said:
                self._context.do(
                    LogWarning(
                        "registration-rejected: the broker rejected the registration of this "
                        "filter server: %(error)s",
                        {"error": trouble},
                    )
                )
            self._said = trouble
            self.registered = False
            self._catalogue.lost()
            self._next_ms = self._context.now_ms + RETRY_MS
            return
        assert isinstance(header, RegisterFilterServerResponse)
        self.registered, self._said = True, ""
        self.broker_name = header.broker_name
        self.broker_decides = header.decides
        self._next_ms = self._context.now_ms + self._policy.register_ms
        if header.filters_version is not None:
            self._catalogue.version_reported(header.filters_version)

    def leave(self) -> None:
        """Unregister, so that no more consumers come."""
        self._leaving = True
        if self.registered:
            self.registered = False
            self._context.ask(
                UnregisterFilterServer(filter_server_addr=self._address),
                lambda _answer: None,
                timeout_ms=TIMEOUT_MS,
            )


# -- uploads of old clients -----------------------------------------------------------------------

JAVA_TEXT = re.compile(
    rb"^[ \t]*(?:package\s+[\w.]+\s*;|import\s+(?:static\s+)?(?:javax?|com|org|net)\.[\w.*]+\s*;"
    rb"|(?:public|final|abstract)\s+(?:\w+\s+)?(?:class|interface)\s+\w+)",
    re.MULTILINE,
)
"""Text that only Java sources contain; it scans long white space only once."""

NO_JAVA = "this is Java source; filters must be Python"


class ClientUploads:
    """Uploads of old clients."""

    def __init__(self, context: CoreContext) -> None:
        self._context = context
        self._named: dict[tuple[str, str], str] = {}

    def filter_of(self, group: str, topic: str) -> str:
        """The filter that a group uploaded for a topic; "" if there is none."""
        return self._named.get((group, topic), "")

    def upload(self, received: Received, request: RegisterMessageFilterClass) -> None:
        """Forward an upload to the broker, and its reply to the client."""
        source = b"".join(received.body)
        try:
            _check(request, source)
        except KourouError as error:
            self._context.do(Reply(received.to, error.wire_code, str(error)))
            return

        def answered(answer: BrokerAnswered) -> None:
            trouble = trouble_of(answer)
            if trouble:
                code = Code.SERVICE_NOT_AVAILABLE if answer.error is not None else answer.code
                self._context.do(Reply(received.to, code, trouble))
                return
            key = (request.consumer_group, request.topic)
            if len(self._named) >= 4 * FILTERS_MAX and key not in self._named:
                del self._named[next(iter(self._named))]
            self._named[key] = request.class_name
            self._context.do(Reply(received.to))

        host, port = received.to.peer.address
        self._context.ask(
            PutFilter(
                consumer_group=request.consumer_group,
                name=request.class_name,
                sha256=hashlib.sha256(source).hexdigest(),
                author=f"{host}:{port}"[:FILTER_AUTHOR_LENGTH_MAX],
                note=f"uploaded by a client, for {request.topic}",
            ),
            answered,
            body=(source,),
            to=received.to,
        )


def _check(request: RegisterMessageFilterClass, source: bytes) -> None:
    check_filter_name(request.class_name)
    if not 0 < len(source) <= FILTER_SOURCE_BYTES_MAX:
        raise BadRequest(
            f"the source of a filter must have 1 to {FILTER_SOURCE_BYTES_MAX} bytes, "
            f"this one has {len(source)}"
        )
    if masked_crc(source) != request.class_crc & 0x7FFF_FFFF:
        raise BadRequest("the source arrived damaged: its CRC-32 does not match")
    if JAVA_TEXT.search(source):
        raise BadRequest(NO_JAVA, hint="upload a function match(message, context)")
