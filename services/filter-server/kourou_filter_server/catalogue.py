"""The filters of the broker, as it told them last, and how new that knowledge is.

Nothing is judged on knowledge that is older than the connection to the broker: after it was away,
pulls wait for its answer. Meanwhile, between a change and the answer that tells it, what was told
before holds.

State: soft. The broker has it in its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kourou.errors import KourouError
from kourou.model.filter import FilterFailure, FilterKey, FilterPolicy, FilterState, FilterVersion
from kourou.model.limits import FILTERS_MAX
from kourou.protocol.filter_bodies import decode_filters
from kourou.protocol.messages.filter_server import GetFilters, GetFiltersResponse
from kourou_filter_server.inputs import BrokerAnswered
from kourou_filter_server.turn import Turn, trouble_of

ASK_AGAIN_MS = 1_000
"""About a filter that is not there, or must not run, the broker is asked so often at most."""


class Standing(NamedTuple):
    """May a filter run? `failure` is None if so, and then there is a `version`."""

    version: FilterVersion | None
    policy: FilterPolicy
    failure: FilterFailure | None = None
    reason: str = ""


class Catalogue:
    """All filters of the broker. `changed` is called after each answer that told them."""

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

    # -- what is known ----------------------------------------------------------------------------

    def standing(self, key: FilterKey) -> Standing:
        """Whether this filter may run now, by all that is known here."""
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
        """Must this version not run?"""
        found = self._filters.get(key)
        return found is not None and self._quarantine_of(found, version) is not None

    def _quarantine_of(self, found: FilterState, version: int) -> str | None:
        own = self._own_quarantines.get((found.key, version))
        return found.quarantined.get(version, own)

    def filters(self) -> list[FilterState]:
        """All of them."""
        return list(self._filters.values())

    # -- quarantine -------------------------------------------------------------------------------

    def quarantine(self, key: FilterKey, version: int, reason: str) -> None:
        """It must not run from now on, though the broker does not know that yet."""
        self._own_quarantines[key, version] = reason

    def confirmed(self, key: FilterKey, version: int) -> None:
        """The broker knows of that quarantine, and says from now on whether it holds."""

        def told() -> None:
            self._own_quarantines.pop((key, version), None)

        self.ask(told)

    # -- asking -----------------------------------------------------------------------------------

    def lost(self) -> None:
        """The broker cannot be reached, or was away: what is known here may be old."""
        self.known = False
        self.version = None  # after a power loss an old number may name another state

    def told(self, version: int) -> None:
        """The broker says that this is the version of all its filters."""
        if version != self.version:
            self.ask()
        else:
            self.known = True

    def ask(self, then: Callable[[], None] | None = None) -> None:
        """Ask for all filters; `then` is called when a question asked from now on was answered.

        It is called, too, when no answer is to be had.
        """
        if self._asking:  # that question may have been answered before what we want to know of
            self._again = True
            if then is not None:
                self._waiting_for_next.append(then)
            return
        if then is not None:
            self._waiting.append(then)
        self._asking = self._turn.ask(GetFilters(), self._answered)

    def look_again(self, key: FilterKey, then: Callable[[], None]) -> bool:
        """Ask about a filter that cannot run, unless that was done a moment ago: then False.

        Whoever gets False waits, and comes again: with the next tick, or when something changed.
        """
        asked_ms = self._asked_ms.get(key)
        if asked_ms is not None and self._turn.now_ms - asked_ms < ASK_AGAIN_MS:
            return False
        if len(self._asked_ms) >= 4 * FILTERS_MAX:  # names that somebody made up
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
