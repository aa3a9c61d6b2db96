"""The limits and times that the core of a filter server uses."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.model.limits import PULL_SIZE_BYTES_MAX

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """The limits of a filter server. Times are milliseconds.

    `workers_max` is for all filters together, including dry runs. A filter that waits for a worker
    takes over another filter's slot when that filter has had it for `turn_ms`. `answer_margin_ms`
    of a request's deadline are reserved for the transfer of the reply; `patience_ms` is how long a
    pull waits for its filter beyond the long-poll time. `ahead_messages` and `ahead_bytes` limit
    one prefetch request to the broker, `ahead_kept_bytes` the total of prefetched records that wait
    for pulls.
    """

    workers_max: int = 4
    batch_messages_max: int = 256
    batch_bytes_max: int = PULL_SIZE_BYTES_MAX
    pulls_max: int = 10_000
    judged_bytes_max: int = 256 * MIB
    ahead_messages: int = 1_024
    ahead_bytes: int = MIB
    ahead_kept_bytes: int = 64 * MIB
    hold_ms_max: int = 30_000
    patience_ms: int = 10_000
    answer_margin_ms: int = 300
    turn_ms: int = 1_000
    worker_idle_ms: int = 300_000
    start_again_ms: int = 1_000
    strikes_max: int = 3
    strike_window_ms: int = 60_000
    passed_over_max: int = 32
    register_ms: int = 10_000
    trials_max: int = 2
    trial_ms_max: int = 10_000
