"""The broker's filters as of its last reply, and whether that knowledge is current.

Nothing is filtered with knowledge from before the current connection to the broker: after a lost
connection, pulls wait for the broker's reply. Between a change and the reply that contains it, the
previous knowledge is used.

State: soft. The broker has the filters in its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kourou.errors import KourouError
from kourou.model.filter import FilterFailure, FilterKey, FilterPolicy, FilterState, FilterVersion
from kourou.model.limits import FILTERS_MAX
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.messages.filter_server import GetFilters, GetFiltersResponse
from kourou_filter_server.inputs import BrokerAnswered
from kourou_filter_server.turn import Turn, trouble_of

ASK_AGAIN_MS = 1_000
"""The minimum interval between requests about one filter that is missing or must not run."""


class Standing(NamedTuple):
    """Whether a filter may run. If so, `failure` is None, and `version` is to be run."""

    version: FilterVersion | None
    policy: FilterPolicy
    failure: FilterFailure | None = None
    reason: str = ""


class Catalogue:
    """All filters of the broker. `changed` is called after each reply that lists them."""

    def __init__(self, turn: Turn, changed: Callable[[], None]) -> None:
        self._turn = turn
        self._changed = changed
        self.version: int | None = None
        self.known = False
        self._filters: dict[FilterKey, FilterState] = {}
        self._own_quarantines: dict[tuple[FilterKey, int], str] = {}
        self._asked_ms: dict[FilterKey, int] = {}
        self._asking = 0
        self._again = False
        self._waiting: list[Callable[[], None]] = []
        self._waiting_for_next: list[Callable[[], None]] = []

    # -- known filters ----------------------------------------------------------------------------

    def standing(self, key: FilterKey) -> Standing:
        """Whether this filter may run, as far as this filter server knows."""
        found = self._filters.get(key)
        group, name = key
        if found is None:
            text = f"group {group} has no filter {name}"
            return Standing(None, FilterPolicy.HOLD, FilterFailure.MISSING, text)
        active = None if found.active is None else found.version(found.active)
        if active is None:
            text = f"filter {name} has no active version"
            return Standing(None, found.policy, FilterFailure.DISABLED, text)
        reason = self._quarantine_of(found, active.version)
        if reason is not None:
            text = f"version {active.version} of filter {name} is quarantined: {reason}"
            return Standing(active, found.policy, FilterFailure.QUARANTINED, text)
        return Standing(active, found.policy)

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

        def told() -> None:
            self._own_quarantines.pop((key, version), None)

        self.ask(told)

    # -- requests to the broker -------------------------------------------------------------------

    def lost(self) -> None:
        """The connection to the broker was lost or replaced: the known filters may be outdated."""
        self.known = False
        self.version = None  # after a power loss the broker may reuse a version number

    def told(self, version: int) -> None:
        """Process the broker's version number of all filters: request the list if it differs."""
        if version != self.version:
            self.ask()
        else:
            self.known = True

    def ask(self, then: Callable[[], None] | None = None) -> None:
        """Request all filters. `then` is called after the reply to a request sent from now on.

        `then` is called if that request fails, too.
        """
        if self._asking:  # the reply to the pending request may not contain the change
            self._again = True
            if then is not None:
                self._waiting_for_next.append(then)
            return
        if then is not None:
            self._waiting.append(then)
        self._asking = self._turn.ask(GetFilters(), self._answered)

    def look_again(self, key: FilterKey, then: Callable[[], None]) -> bool:
        """Request the list because of a filter that cannot run. `then` is called after the reply.

        Returns False, without a request, if there was one for this filter within ASK_AGAIN_MS; the
        caller then retries with the next tick or change.
        """
        asked_ms = self._asked_ms.get(key)
        if asked_ms is not None and self._turn.now_ms - asked_ms < ASK_AGAIN_MS:
            return False
        if len(self._asked_ms) >= 4 * FILTERS_MAX:  # bounds the memory for invented filter names
            self._asked_ms.clear()
        self._asked_ms[key] = self._turn.now_ms
        self.ask(then)
        return True

    def _answered(self, answer: BrokerAnswered) -> None:
        self._asking = 0
        waiting, self._waiting = self._waiting, []
        trouble = self._take(answer)
        if trouble:
            self._turn.warn(f"the broker did not return its filters: {trouble}")
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
