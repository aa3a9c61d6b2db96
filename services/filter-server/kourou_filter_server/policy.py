"""What a filter server's core is told about how much it may do, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.model.limits import PULL_SIZE_BYTES_MAX

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Times are milliseconds.

    `workers_max` holds for all filters together, dry runs included. A filter that waits for a
    worker gets that of another one when that had `turn_ms`. `answer_margin_ms` of a request's
    deadline are left for the answer's way back; `patience_ms` is how long a pull waits for its
    filter beyond the time it may be held. `ahead_messages` and `ahead_bytes` bound what is asked of
    the broker beyond what a consumer asked for, `ahead_kept_bytes` what of it waits for pulls.
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
