"""Failures of filter versions, and the quarantine that follows too many of them.

A version is quarantined here immediately, and at every filter server once the broker has recorded
it as an event in its log. An operator ends the quarantine by enabling the version again.

State: soft, except for what the broker has recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kourou.errors import Code
from kourou.model.filter import FilterAction, FilterKey
from kourou.model.limits import FILTER_REASON_LENGTH_MAX
from kourou.protocol.messages.filter_server import ChangeFilter
from kourou_filter_server.catalogue import Catalogue
from kourou_filter_server.inputs import BrokerAnswered
from kourou_filter_server.policy import ServerPolicy
from kourou_filter_server.statistics import FilterStatistics
from kourou_filter_server.strikes import FailureCounts
from kourou_filter_server.turn import Turn, trouble_of

TELL_AGAIN_MS = 1_000
_MS = 1_000


@dataclass(slots=True)
class _Untold:
    """A quarantine that the broker has not recorded yet."""

    reason: str
    tell_at_ms: int


class Discipline:
    """Counts failures. `quarantined` is called with the key of a newly quarantined filter."""

    def __init__(
        self,
        turn: Turn,
        policy: ServerPolicy,
        catalogue: Catalogue,
        statistics: FilterStatistics,
        quarantined: Callable[[FilterKey], None],
    ) -> None:
        self._turn = turn
        self._policy = policy
        self._catalogue = catalogue
        self._statistics = statistics
        self._quarantined = quarantined
        self._strikes = FailureCounts(policy.strikes_max, policy.strike_window_ms)
        self._untold: dict[tuple[FilterKey, int], _Untold] = {}

    def strike(self, key: FilterKey, version: int, kind: str, reason: str) -> None:
        """Count a failure of a version; quarantine it at the limit."""
        who = (key, version)
        if not self._strikes.add(self._turn.now_ms, who):
            return
        self._strikes.clear(who)
        policy = self._policy
        text = (
            f"{policy.strikes_max} failures within {policy.strike_window_ms // _MS} "
            f"s; last error: {kind}: {reason}"
        )[:FILTER_REASON_LENGTH_MAX]
        group, name = key
        self._turn.warn(
            f"version {version} of filter {name} of group {group} is quarantined: {text}"
        )
        self._statistics.of(key, version).quarantines += 1
        self._catalogue.quarantine(key, version, text)
        self._untold[who] = _Untold(text, self._turn.now_ms)
        self.tick()
        self._quarantined(key)

    def take_back(self, at_ms: int, key: FilterKey, version: int) -> None:
        """Cancel the failure of that time: the filter was not its cause."""
        self._strikes.take_back(at_ms, (key, version))

    def strikes(self, key: FilterKey, version: int) -> int:
        """The number of failures within the configured window."""
        return self._strikes.count(self._turn.now_ms, (key, version))

    @property
    def untold(self) -> int:
        """The number of quarantines that the broker has not recorded yet."""
        return len(self._untold)

    def tick(self) -> None:
        """Report quarantines to the broker, and retry those that failed."""
        for who, untold in self._untold.items():
            if self._turn.now_ms >= untold.tell_at_ms:
                untold.tell_at_ms = self._turn.now_ms + 10 * TELL_AGAIN_MS  # the reply changes it
                self._tell(who, untold)

    def _tell(self, who: tuple[FilterKey, int], untold: _Untold) -> None:
        (group, name), version = who

        def answered(answer: BrokerAnswered) -> None:
            trouble = trouble_of(answer)
            if trouble and answer.code != Code.QUERY_NOT_FOUND:
                untold.tell_at_ms = self._turn.now_ms + TELL_AGAIN_MS
                return
            self._untold.pop(who, None)
            self._catalogue.confirmed((group, name), version)

        self._turn.ask(
            ChangeFilter(
                consumer_group=group,
                name=name,
                action=FilterAction.QUARANTINE.value,
                version=version,
                reason=untold.reason,
            ),
            answered,
        )
