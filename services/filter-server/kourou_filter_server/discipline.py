"""Failures of filter versions, and the quarantine that follows too many of them.

A version is quarantined here immediately, and at every filter server once the broker has recorded
it as an event in its log. An operator ends the quarantine by enabling the version again.

State: soft, except for what the broker has recorded. After a restart the counts are 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kourou.errors import Code
from kourou.model.filter import FilterAction, FilterKey
from kourou.model.limits import FILTER_REASON_LENGTH_MAX, FILTER_VERSIONS_MAX, FILTERS_MAX
from kourou.protocol.messages.filter_server import ChangeFilter
from kourou.runtime import LogWarning
from kourou_filter_server.catalogue import Catalogue
from kourou_filter_server.context import CoreContext, FilterStatistics, ServerPolicy, trouble_of
from kourou_filter_server.interface import BrokerAnswered

# -- failure counts -------------------------------------------------------------------------------

VersionKey = tuple[FilterKey, int]

VERSIONS_KNOWN_MAX = FILTERS_MAX * FILTER_VERSIONS_MAX
"""The number of versions that a broker stores; a group could upload new failing ones forever."""


class FailureCounts:
    """Failures of each version within the last `window_ms`; `limit` is the quarantine limit."""

    def __init__(self, limit: int, window_ms: int) -> None:
        self._limit = limit
        self._window_ms = window_ms
        self._at_ms: dict[VersionKey, deque[int]] = {}

    def add(self, now_ms: int, who: VersionKey) -> bool:
        """Count a failure. True if the limit is reached."""
        found = self._at_ms.get(who)
        if found is None:
            if len(self._at_ms) >= VERSIONS_KNOWN_MAX:
                del self._at_ms[next(iter(self._at_ms))]
            found = self._at_ms[who] = deque(maxlen=self._limit)
        self._forget(now_ms, found)
        found.append(now_ms)
        return len(found) >= self._limit

    def take_back(self, at_ms: int, who: VersionKey) -> None:
        """Remove the failure of that time: the filter was not its cause."""
        found = self._at_ms.get(who)
        if found and at_ms in found:
            found.remove(at_ms)

    def clear(self, who: VersionKey) -> None:
        """Reset the count of a version."""
        self._at_ms.pop(who, None)

    def count(self, now_ms: int, who: VersionKey) -> int:
        """The current number of failures."""
        found = self._at_ms.get(who)
        if not found:
            return 0
        self._forget(now_ms, found)
        return len(found)

    def _forget(self, now_ms: int, found: deque[int]) -> None:
        while found and now_ms - found[0] >= self._window_ms:
            found.popleft()


# -- quarantine -----------------------------------------------------------------------------------

REPORT_AGAIN_MS = 1_000
_MS = 1_000


@dataclass(slots=True)
class _Unrecorded:
    """A quarantine that the broker has not recorded yet."""

    reason: str
    report_at_ms: int


class Discipline:
    """Counts failures. `quarantined` is called with the key of a newly quarantined filter."""

    def __init__(
        self,
        context: CoreContext,
        policy: ServerPolicy,
        catalogue: Catalogue,
        statistics: FilterStatistics,
        quarantined: Callable[[FilterKey], None],
    ) -> None:
        self._context = context
        self._policy = policy
        self._catalogue = catalogue
        self._statistics = statistics
        self._quarantined = quarantined
        self._failures = FailureCounts(policy.failures_max, policy.failure_window_ms)
        self._unrecorded: dict[tuple[FilterKey, int], _Unrecorded] = {}

    def count_failure(self, key: FilterKey, version: int, kind: str, reason: str) -> None:
        """Count a failure of a version; quarantine it at the limit."""
        who = (key, version)
        if not self._failures.add(self._context.now_ms, who):
            return
        self._failures.clear(who)
        policy = self._policy
        text = (
            f"{policy.failures_max} failures within {policy.failure_window_ms // _MS} "
            f"s; last error: {kind}: {reason}"
        )[:FILTER_REASON_LENGTH_MAX]
        group, name = key
        self._context.do(
            LogWarning(
                "filter-quarantined: version %(version)d of filter %(filter)s of group %(group)s "
                "is quarantined: %(reason)s",
                {"version": version, "filter": name, "group": group, "reason": text},
            )
        )
        self._statistics.of(key, version).quarantines += 1
        self._catalogue.quarantine(key, version, text)
        self._unrecorded[who] = _Unrecorded(text, self._context.now_ms)
        self.tick()
        self._quarantined(key)

    def take_back(self, at_ms: int, key: FilterKey, version: int) -> None:
        """Cancel the failure of that time: the filter was not its cause."""
        self._failures.take_back(at_ms, (key, version))

    def failure_count(self, key: FilterKey, version: int) -> int:
        """The number of failures within the configured window."""
        return self._failures.count(self._context.now_ms, (key, version))

    @property
    def unrecorded(self) -> int:
        """The number of quarantines that the broker has not recorded yet."""
        return len(self._unrecorded)

    def tick(self) -> None:
        """Report quarantines to the broker, and retry those that failed."""
        for who, unrecorded in self._unrecorded.items():
            if self._context.now_ms >= unrecorded.report_at_ms:
                unrecorded.report_at_ms = (
                    self._context.now_ms + 10 * REPORT_AGAIN_MS
                )  # the reply changes it
                self._report(who, unrecorded)

    def _report(self, who: tuple[FilterKey, int], unrecorded: _Unrecorded) -> None:
        (group, name), version = who

        def answered(answer: BrokerAnswered) -> None:
            trouble = trouble_of(answer)
            if trouble and answer.code != Code.QUERY_NOT_FOUND:
                unrecorded.report_at_ms = self._context.now_ms + REPORT_AGAIN_MS
                return
            self._unrecorded.pop(who, None)
            self._catalogue.confirmed((group, name), version)

        self._context.ask(
            ChangeFilter(
                consumer_group=group,
                name=name,
                action=FilterAction.QUARANTINE.value,
                version=version,
                reason=unrecorded.reason,
            ),
            answered,
        )
