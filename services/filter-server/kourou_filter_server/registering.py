"""Registration with the broker, which returns the version of its filters.

A filter server registers over the connection on which it receives notifications; the broker removes
it when that connection closes, or after 30 s of silence.

State: soft.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.protocol.messages.filter_server import (
    RegisterFilterServer,
    RegisterFilterServerResponse,
    UnregisterFilterServer,
)
from kourou_filter_server.catalogue import Catalogue
from kourou_filter_server.inputs import BrokerAnswered
from kourou_filter_server.policy import ServerPolicy
from kourou_filter_server.turn import Turn, trouble_of

RETRY_MS = 1_000
"""The delay after a failed registration: short, since both are often started together."""

TIMEOUT_MS = 3_000


class Registering:
    """Keeps a filter server registered. `listeners`: `carrier:listener` -> consumers' address."""

    def __init__(
        self,
        turn: Turn,
        policy: ServerPolicy,
        catalogue: Catalogue,
        address: str,
        listeners: Mapping[str, str],
    ) -> None:
        self._turn = turn
        self._policy = policy
        self._catalogue = catalogue
        self._address = address
        self._listeners = dict(listeners)
        self._next_ms = 0
        self._asking = 0
        self._leaving = False
        self._said = ""
        self.registered = False
        self.broker_name = ""

    @property
    def trouble(self) -> str:
        """Why it is not registered, as far as is known; "" if it is."""
        return "" if self.registered else self._said or "not registered with the broker yet"

    def found(self) -> None:
        """Register over a new connection: the registration of the previous one is void."""
        self._catalogue.lost()
        self.registered = False
        self._turn.forget(self._asking)
        self._asking = 0
        self._next_ms = self._turn.now_ms
        self.tick()

    def tick(self) -> None:
        """Register, if it is time to."""
        if self._asking or self._leaving or self._turn.now_ms < self._next_ms:
            return
        request = RegisterFilterServer(
            filter_server_addr=self._address, listeners=self._listeners or None
        )
        self._asking = self._turn.ask(request, self._answered, timeout_ms=TIMEOUT_MS)

    def _answered(self, answer: BrokerAnswered) -> None:
        self._asking = 0
        header = answer.header
        trouble = trouble_of(answer)
        if not trouble and not isinstance(header, RegisterFilterServerResponse):
            trouble = "it did not return its broker name"
        if trouble:
            if self.registered or trouble != self._said:
                self._turn.warn(
                    f"the broker rejected the registration of this filter server: {trouble}"
                )
            self._said = trouble
            self.registered = False
            self._catalogue.lost()
            self._next_ms = self._turn.now_ms + RETRY_MS
            return
        assert isinstance(header, RegisterFilterServerResponse)
        self.registered, self._said = True, ""
        self.broker_name = header.broker_name
        self._next_ms = self._turn.now_ms + self._policy.register_ms
        if header.filters_version is not None:
            self._catalogue.told(header.filters_version)

    def leave(self) -> None:
        """Unregister, so that no more consumers come."""
        self._leaving = True
        if self.registered:
            self.registered = False
            self._turn.ask(
                UnregisterFilterServer(filter_server_addr=self._address),
                lambda _answer: None,
                timeout_ms=TIMEOUT_MS,
            )
