"""What all components of the core share.

    ServerPolicy      limits and times, from the settings
    CoreContext       the current time, the effects, the requests to the broker
    FilterStatistics  what was filtered since the start, by group, name and version

State: soft: the pending requests and the statistics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kourou.model.filter import FilterKey
from kourou.model.limits import FILTER_VERSIONS_MAX, FILTERS_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.units import MIB
from kourou.protocol.request import Request
from kourou.runtime import ReplyTo
from kourou.telemetry.metric_table import FILTER_BOUNDS_US
from kourou_filter_server.interface import AskBroker, BrokerAnswered, Buffer, Effect


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """The limits of a filter server. Times are milliseconds.

    `workers_max` is for all filters together, including dry runs. A filter that waits for a worker
    takes over another filter's slot when that filter has had it for `turn_ms`. `answer_margin_ms`
    of a request's deadline are reserved for the transfer of the reply; `filter_wait_ms` is how long
    a pull waits for its filter beyond the long-poll time. `ahead_messages` and `ahead_bytes` limit
    one prefetch request to the broker, `ahead_kept_bytes` the total of prefetched records that wait
    for pulls. `filters_of_all`: uploads and dry runs are not only for clients on this machine and
    for those with a CURVE key.
    """

    workers_max: int = 4
    batch_messages_max: int = 256
    batch_bytes_max: int = PULL_SIZE_BYTES_MAX
    pulls_max: int = 10_000
    waiting_bytes_max: int = 256 * MIB
    ahead_messages: int = 1_024
    ahead_bytes: int = MIB
    ahead_kept_bytes: int = 64 * MIB
    hold_ms_max: int = 30_000
    filter_wait_ms: int = 10_000
    answer_margin_ms: int = 300
    turn_ms: int = 1_000
    worker_idle_ms: int = 300_000
    start_again_ms: int = 1_000
    failures_max: int = 3
    failure_window_ms: int = 60_000
    passed_over_max: int = 32
    register_ms: int = 10_000
    trials_max: int = 2
    trial_ms_max: int = 10_000
    filters_of_all: bool = False


# -- the context ----------------------------------------------------------------------------------

Then = Callable[[BrokerAnswered], None]

ASK_MS = 5_000
"""The timeout of a request that is no long poll."""


class CoreContext:
    """`now_ms` is monotonic, `wall_ms` the wall clock; both as of the current inputs."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        self._open: dict[int, Then] = {}
        self._token = 0
        self._wall_ahead_ms = 0

    def begin(self, now_ms: int) -> None:
        """Start a new iteration of the loop, with no effects."""
        self.now_ms = now_ms
        self.wall_ms = now_ms + self._wall_ahead_ms
        self.effects = []

    def clock(self, wall_ms: int) -> None:
        """Set the wall clock."""
        self._wall_ahead_ms = wall_ms - self.now_ms
        self.wall_ms = wall_ms

    def do(self, effect: Effect) -> None:
        """Append an effect."""
        self.effects.append(effect)

    def ask(
        self,
        request: Request,
        then: Then,
        *,
        body: Sequence[Buffer] = (),
        timeout_ms: int = ASK_MS,
        to: ReplyTo | None = None,
    ) -> int:
        """Send a request to the broker. `then` is called once with the result, unless forgotten.

        Returns the token of the request.
        """
        self._token += 1
        self._open[self._token] = then
        self.effects.append(AskBroker(self._token, request, body, timeout_ms, to))
        return self._token

    def forget(self, token: int) -> None:
        """Ignore the reply to a request."""
        self._open.pop(token, None)

    def answered(self, answer: BrokerAnswered) -> None:
        """Process the broker's reply, or the failure of a request."""
        then = self._open.pop(answer.token, None)
        if then is not None:
            then(answer)

    @property
    def open_questions(self) -> int:
        """The number of pending requests."""
        return len(self._open)


def trouble_of(answer: BrokerAnswered) -> str:
    """Why a request failed; "" if it succeeded."""
    if answer.error is not None:
        return str(answer.error)
    return "" if answer.code == 0 else answer.remark or f"response code {answer.code}"


# -- statistics -----------------------------------------------------------------------------------

VERSIONS_COUNTED_MAX = FILTERS_MAX * FILTER_VERSIONS_MAX


@dataclass(slots=True)
class VersionCounts:
    """The statistics of one version.

    Messages: `seen` were evaluated, `passed` and `denied` are the results; `errors` could not be
    evaluated, by kind; of these, `skipped` and `unfiltered` were handled by policy. `batches` went
    to workers, `micros` is the time inside the filter, `times` counts batches by microseconds for
    each message. `starts` of workers took `start_micros` together.
    """

    seen: int = 0
    passed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    unfiltered: int = 0
    batches: int = 0
    micros: int = 0
    times: list[int] = field(default_factory=lambda: [0] * (len(FILTER_BOUNDS_US) + 1))
    bytes_in: int = 0
    bytes_out: int = 0
    starts: int = 0
    start_micros: int = 0
    quarantines: int = 0
    last_kind: str = ""
    last_reason: str = ""
    last_failed_ms: int | None = None

    def evaluated(self, count: int, micros: int) -> None:
        """Count a batch."""
        self.batches += 1
        self.seen += count
        self.micros += micros
        self.times[bisect_left(FILTER_BOUNDS_US, micros / max(1, count))] += 1

    def failed(self, kind: str, reason: str, wall_ms: int) -> None:
        """Count a message, or a whole batch, that could not be evaluated."""
        self.errors[kind] += 1
        self.last_kind, self.last_reason, self.last_failed_ms = kind, reason, wall_ms


class FilterStatistics:
    """The statistics of every version since the start, and of pulls whose filter failed."""

    def __init__(self) -> None:
        self._counts: dict[tuple[FilterKey, int], VersionCounts] = {}
        self.pulls = 0
        self.pulls_failed: Counter[str] = Counter()

    def of(self, key: FilterKey, version: int) -> VersionCounts:
        """The statistics of one version; the oldest ones are dropped if there are too many."""
        found = self._counts.get((key, version))
        if found is None:
            if len(self._counts) >= VERSIONS_COUNTED_MAX:
                del self._counts[next(iter(self._counts))]
            found = self._counts[key, version] = VersionCounts()
        return found

    def all(self) -> list[tuple[FilterKey, int, VersionCounts]]:
        """The statistics of all versions."""
        return [(key, version, counts) for (key, version), counts in self._counts.items()]
