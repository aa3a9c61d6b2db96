"""The connection to the broker: sends requests, receives replies and notifications.

A request that cannot be sent within CONNECT_WAIT_MS fails, so that an offline broker is reported
quickly. Consumers repeat their pulls.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from kourou.clock import Clock
from kourou.errors import KourouError
from kourou.protocol.messages.filter_server import NotifyFiltersChanged
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import (
    NO_TRACE,
    Frame,
    decode_reply,
    decode_request,
    encode_request,
)
from kourou.runtime.core import ReplyTo
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.pending_requests import Outcome
from kourou.transport.zmq_client import ZmqConnection
from kourou_filter_server.effects import AskBroker, TellBroker
from kourou_filter_server.inputs import BrokerAnswered, BrokerFound, FiltersChanged, Input

CONNECT_WAIT_MS = 200


class Upstream:
    """Sends requests to the broker. `context_of` returns the trace context of a request."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        post: Callable[[Input], None],
        context_of: Callable[[ReplyTo], bytes],
        curve: ClientCurve | None = None,
    ) -> None:
        self._clock = clock
        self._post = post
        self._context_of = context_of
        self._connection = ZmqConnection(
            address,
            on_notify=self._told,
            connect_wait_ms=CONNECT_WAIT_MS,
            clock=clock,
            curve=curve,
        )
        self._connection.on_connected = lambda: post(BrokerFound())

    def ask(self, effect: AskBroker) -> None:
        """Send a request; its result is posted."""
        token, request = effect.token, effect.request
        response = REQUESTS[request.code].response
        trace = NO_TRACE
        if effect.to is not None and effect.to.trace:
            trace = self._context_of(effect.to) or effect.to.trace

        def ended(outcome: Outcome) -> None:
            if isinstance(outcome, KourouError):
                self._post(BrokerAnswered(token, error=outcome))
                return
            try:
                code, remark, header = decode_reply(outcome, response)
            except KourouError as error:
                self._post(BrokerAnswered(token, error=error))
                return
            self._post(BrokerAnswered(token, code, remark, header, outcome.body))

        correlation = self._connection.next_correlation()
        head = encode_request(
            request, correlation=correlation, deadline_ms=effect.timeout_ms, trace=trace
        )
        deadline_ms = self._clock.monotonic_ms() + effect.timeout_ms
        try:
            self._connection.submit([head, *effect.body], correlation, ended, deadline_ms)
        except KourouError as error:  # it is closed: the service ends
            self._post(BrokerAnswered(token, error=error))

    def tell(self, effect: TellBroker) -> None:
        """Send a one-way request, if there is a connection."""
        if self._connection.connected:
            with suppress(KourouError):  # it is closed or full; losing the request is acceptable
                self._connection.oneway(effect.request)

    def _told(self, frame: Frame) -> None:
        if frame.code != NotifyFiltersChanged.code:
            return  # a notification for other clients
        try:
            request = decode_request(frame)
        except KourouError:  # the next registration returns the version anyway
            return
        assert isinstance(request, NotifyFiltersChanged)
        self._post(FiltersChanged(request.filters_version))

    @property
    def connected(self) -> bool:
        """Whether a connection is established."""
        return self._connection.connected

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._connection.address

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
