"""One consumer's pull under way, and the places in a queue that its answer names.

State: soft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from kourou.model.filter import FilterFailure, FilterKey, FilterPolicy
from kourou.model.limits import PULL_SIZE_BYTES_MAX
from kourou.model.subscription import MATCH_ALL, TAG
from kourou.protocol.messages.pulling import PullFlag, PullMessage, PullResponse
from kourou.runtime.inputs import Received
from kourou_filter_server.ahead import COMMIT_OFFSET, Queue
from kourou_filter_server.jobs import Job

# Plain integers: an operation on a flag of an enum costs as much as the rest of a decision.
_SUSPEND = int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
_CLASS_FILTER = int(PullFlag.CLASS_FILTER)


class PullDesk(Protocol):
    """Who decides about pulls; see kourou_filter_server.pulls."""

    def close(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """No more verdicts will come."""
        ...

    def stuck(self, pull: Pull, job: Job, kind: str, reason: str) -> bool:
        """A record cannot be judged."""
        ...

    def refused(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """The filter cannot run."""
        ...


@dataclass(slots=True, eq=False)
class Pull:
    """One pull under way; owns the run of records that is judged for it.

    `offset` is where the broker is asked next: everything before it is judged, and nothing of that
    is wanted. `hold_until_ms`: so long nothing needs to be answered. `answer_by_ms`: then something
    must be. `beyond`: the broker was asked for more than the consumer asked for; `exact`: it must
    not be. `found_ms` is when the broker last had messages for it.
    """

    desk: PullDesk
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
        """What it reads, through which filter."""
        request = self.request
        return self.key, request.topic, request.queue_id

    @property
    def bytes_max(self) -> int:
        """How many bytes of messages its answer may have."""
        size = self.request.max_msg_bytes
        return PULL_SIZE_BYTES_MAX if size is None else min(size, PULL_SIZE_BYTES_MAX)

    @property
    def advanced(self) -> bool:
        """Is something judged, of which nothing is wanted?"""
        return self.offset > self.request.queue_offset

    def judged(self, job: Job) -> None:
        """There is a verdict for every record."""
        self.desk.close(self, job, "", "")

    def stuck(self, job: Job, kind: str, reason: str) -> bool:
        """The record behind the last verdict cannot be judged."""
        return self.desk.stuck(self, job, kind, reason)

    def refused(self, job: Job, kind: str, reason: str) -> None:
        """The filter cannot run."""
        self.desk.refused(self, job, kind, reason)


def lets_all_through(failure: str, policy: FilterPolicy) -> bool:
    """Is a filter that cannot run gone around? One that nobody wants to run holds."""
    switched_off = (FilterFailure.MISSING, FilterFailure.DISABLED)
    return policy is FilterPolicy.PASS and failure not in switched_off


def upstream(pull: Pull, hold_ms: int, count: int, bytes_beyond: int) -> PullMessage:
    """The same pull as the broker is asked: without the filter, and perhaps for more messages."""
    request = pull.request
    flags = request.sys_flag & ~(_CLASS_FILTER | _SUSPEND) | _SUBSCRIPTION
    if pull.asked:
        flags &= ~COMMIT_OFFSET  # once is enough
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
    """The place in an answer that names none."""
    return PullResponse(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0)


def at_offset(place: PullResponse, next_offset: int) -> PullResponse:
    """The same, but to go on from there."""
    if place.next_begin_offset == next_offset:
        return place
    return msgspec.structs.replace(place, next_begin_offset=next_offset)
