"""A consumer's pull in progress, and the offsets in its reply.

State: soft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse

from kourou.model.filter import FilterFailure, FilterKey, FilterPolicy
from kourou.model.limits import PULL_SIZE_BYTES_MAX
from kourou.model.subscription import MATCH_ALL, TAG
from kourou.runtime.core import Received
from kourou_filter_server.ahead import COMMIT_OFFSET, Queue
from kourou_filter_server.jobs import Job

# Plain integers, because operations on enum flags are as expensive as the rest of a decision.
_SUSPEND = int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
_CLASS_FILTER = int(PullFlag.CLASS_FILTER)


class PullOwner(Protocol):
    """What a pull needs from kourou_filter_server.pulls."""

    def close(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """No more results will come."""
        ...

    def stuck(self, pull: Pull, job: Job, kind: str, reason: str) -> bool:
        """A record cannot be evaluated."""
        ...

    def refused(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """The filter cannot run."""
        ...


@dataclass(slots=True, eq=False)
class Pull:
    """One pull in progress; owns the run of records that is filtered for it.

    `offset` is the next one to request from the broker: all records before it were filtered, and
    none of them passed. No reply is necessary before `hold_until_ms`; one is due at `answer_by_ms`.
    `beyond`: more was requested from the broker than the consumer asked for; `exact`: this is not
    allowed. `found_ms` is when the broker last returned messages for it.
    """

    owner: PullOwner
    received: Received
    request: PullMessage
    key: FilterKey
    offset: int
    hold_until_ms: int
    answer_by_ms: int
    token: int = 0
    job: Job | None = None
    place: PullResponse | None = None
    remark: str = ""
    asked: bool = False
    beyond: bool = False
    exact: bool = False
    found_ms: int = 0
    excused: int = 0
    seen: int = 0
    passed: int = 0
    micros: int = 0
    done: bool = False

    @property
    def queue(self) -> Queue:
        """The filter and the queue that it reads."""
        request = self.request
        return self.key, request.topic, request.queue_id

    @property
    def bytes_max(self) -> int:
        """The maximum number of message bytes in its reply."""
        size = self.request.max_msg_bytes
        return PULL_SIZE_BYTES_MAX if size is None else min(size, PULL_SIZE_BYTES_MAX)

    @property
    def advanced(self) -> bool:
        """Whether records were filtered of which none passed."""
        return self.offset > self.request.queue_offset

    def judged(self, job: Job) -> None:
        """Every record has a result."""
        self.owner.close(self, job, "", "")

    def stuck(self, job: Job, kind: str, reason: str) -> bool:
        """The record after the last result cannot be evaluated."""
        return self.owner.stuck(self, job, kind, reason)

    def refused(self, job: Job, kind: str, reason: str) -> None:
        """The filter cannot run."""
        self.owner.refused(self, job, kind, reason)


def lets_all_through(failure: str, policy: FilterPolicy) -> bool:
    """Whether all messages pass by policy. Missing and disabled filters never let messages pass."""
    switched_off = (FilterFailure.MISSING, FilterFailure.DISABLED)
    return policy is FilterPolicy.PASS and failure not in switched_off


def upstream(pull: Pull, hold_ms: int, count: int, bytes_beyond: int) -> PullMessage:
    """The pull request to the broker: without the filter, and possibly for more messages."""
    request = pull.request
    flags = request.sys_flag & ~(_CLASS_FILTER | _SUSPEND) | _SUBSCRIPTION
    if pull.asked:
        flags &= ~COMMIT_OFFSET  # one commit is enough
    if hold_ms:
        flags |= _SUSPEND
    size = request.max_msg_bytes
    if size is not None and count > request.max_msg_nums:
        size = max(size, bytes_beyond)
    return msgspec.structs.replace(
        request,
        queue_offset=pull.offset,
        max_msg_nums=count,
        max_msg_bytes=size,
        sys_flag=flags,
        suspend_timeout_millis=hold_ms,
        subscription=MATCH_ALL,
        sub_version=0,
        expression_type=TAG,
    )


def nowhere() -> PullResponse:
    """The header of a reply without offsets."""
    return PullResponse(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0)


def at_offset(place: PullResponse, next_offset: int) -> PullResponse:
    """The same header with another next offset."""
    if place.next_begin_offset == next_offset:
        return place
    return msgspec.structs.replace(place, next_begin_offset=next_offset)
