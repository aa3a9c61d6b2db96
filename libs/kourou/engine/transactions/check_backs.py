"""Check-backs: the broker asks the producer group about half messages that are not resolved.

State: soft: the progress of the current round. The check count of a half message is in its record.

A round begins every transactionCheckInterval. It goes through the half messages that are open at
that time, in the order of their queue offsets, a few in each tick. As in RocketMQ 4.9:

- one that was checked transactionCheckMax times, or was born more than fileReservedTime ago, is
  given up: it goes to TRANS_CHECK_MAX_TIME_TOPIC, where operators find it
- at the first one that is younger than transactionTimeOut the round ends
- one with an immunity time that has not passed (CHECK_IMMUNITY_TIME_IN_SECONDS) is put back at the
  end
- any other is put back with its check count increased, and the broker asks one member of its
  producer group, each member in turn

Putting back lets the committed offset of the half queue advance, and keeps an open half message out
of the segments that expire. Unlike in RocketMQ, transactionTimeOut and the immunity time count from
when the half message was stored, not from its producer's clock; and after the last check there is
time for its reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.groups.membership import GroupClient
from kourou.engine.sends.appends import Target
from kourou.engine.transactions.half_messages import (
    COMMIT,
    GIVEN_UP_TARGET,
    HALF_TARGET,
    HalfRecord,
    checked,
    given_up,
    question,
    still_immune,
)
from kourou.engine.transactions.open_halves import OpenHalf
from kourou.engine.transactions.transaction_handler import TransactionEnd, TransactionHandler
from kourou.errors import Corrupt, KourouError, Rejected
from kourou.model.units import HOUR_MS
from kourou.protocol.messages.sends import CheckTransactionState
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import encode_offset_id
from kourou.runtime import LogWarning, Notify

HALVES_PER_TICK = 256
"""The most half messages that a round handles in one tick, so that other requests do not wait."""


@dataclass(slots=True)
class _Step:
    """What a tick does to half messages: the records to append, and the changes after that."""

    drafts: list[tuple[Target, bytes]] = field(default_factory=list)
    given_up: list[tuple[OpenHalf, HalfRecord]] = field(default_factory=list)
    put_back: list[tuple[OpenHalf, HalfRecord, bool]] = field(default_factory=list)


def _everyone(_member: GroupClient, _topic: str, _wall_ms: int) -> bool:
    return True


def _topic_of(record: HalfRecord) -> str:
    """The topic that a half message is for; "" if it does not say."""
    try:
        return record.real_target[0]
    except Corrupt:
        return ""


class CheckBacks:
    """Asks producers about their open half messages."""

    def __init__(self, context: BrokerContext, transactions: TransactionHandler) -> None:
        self._transactions = transactions
        self._members = context.members
        self._policy = context.policy
        self._pressure = context.pressure
        self._store_host = context.store_host
        self._host = encode_host(context.store_host)
        self._next_round_ms = 0
        self._round_end = 0
        self._turn = 0
        self._lonely: set[str] = set()
        self._troubled = False
        self.asked = 0
        self.unasked = 0
        self.may_know: Callable[[GroupClient, str, int], bool] = _everyone
        """(producer, topic, wall clock): may it see messages that were sent to the topic?"""

    def start(self, now_ms: int) -> None:
        """Schedule the next round one interval from now."""
        self._next_round_ms = now_ms + self._policy.transaction_check_interval_ms

    def tick(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """Continue the round or begin one. The core takes the appends before these effects."""
        self._transactions.tick(now_ms, wall_ms)
        halves = self._transactions.halves
        if now_ms >= self._next_round_ms:
            self.start(now_ms)
            self._round_end = halves.half_end
            self._lonely.clear()
        if not self._round_end or self._pressure.refusing:
            return []
        first = halves.first(HALVES_PER_TICK)
        if not first or first[0].offset >= self._round_end:
            self._round_end = 0
            return []
        return self._go_on(first, now_ms, wall_ms)

    def _go_on(self, halves: list[OpenHalf], now_ms: int, wall_ms: int) -> list[Effect]:
        step = _Step()
        warnings: list[Effect] = []
        try:
            for half in halves:
                if half.offset >= self._round_end or not self._look(half, now_ms, wall_ms, step):
                    self._round_end = 0
                    break
            effects = self._done(step, wall_ms)
        except KourouError as error:
            # Only resolved half messages of this step have changed; the next tick retries the rest.
            if not self._troubled:
                warnings = [
                    LogWarning(
                        "checks-failed: open transactions cannot be checked: %(error)s",
                        {"error": error},
                    )
                ]
            self._troubled = True
            return warnings
        self._troubled = False
        return effects

    def _look(self, half: OpenHalf, now_ms: int, wall_ms: int, step: _Step) -> bool:
        """Decide about one half message; return False if the round ends here."""
        policy = self._policy
        age_ms = now_ms - half.since_ms
        last = half.checks >= policy.transaction_check_max
        if not last and half.immunity_ms is None and age_ms < policy.transaction_timeout_ms:
            return False
        try:
            record = self._transactions.read(half.position)
        except (Rejected, Corrupt):
            # Quarantined, or deleted by age: it can never be resolved.
            self._transactions.forget(half)
            return True
        if self._transactions.is_committed(half, record):
            self._transactions.resolve([TransactionEnd(half, record, COMMIT, None)], wall_ms)
            return True
        expired = wall_ms - record.born_ms > policy.reserved_hours * HOUR_MS
        if last or expired:
            step.drafts.append((GIVEN_UP_TARGET, given_up(record)))
            step.given_up.append((half, record))
            return True
        immune = half.immunity_ms is not None and age_ms < half.immunity_ms
        draft = still_immune(record) if immune else checked(record, half.checks + 1)
        step.drafts.append((HALF_TARGET, draft))
        step.put_back.append((half, record, not immune))
        return True

    def _done(self, step: _Step, wall_ms: int) -> list[Effect]:
        """Append the records of the step, and only then apply its changes."""
        if not step.drafts:
            return []
        transactions = self._transactions
        placed = transactions.append_placed(step.drafts, wall_ms)
        places = zip(placed.offsets, placed.positions, strict=True)
        backs = [
            (place, draft)
            for place, (target, draft) in zip(places, step.drafts, strict=True)
            if target == HALF_TARGET
        ]
        for half, record in step.given_up:
            transactions.close_given_up(half, record)
        effects: list[Effect] = []
        for ((offset, position), draft), (half, record, asking) in zip(
            backs, step.put_back, strict=True
        ):
            transactions.put_back(half, offset, position, record)
            if asking:
                half.checks += 1
                effects += self._ask(record, draft, (offset, position), wall_ms)
        if step.given_up:
            _, first = step.given_up[0]
            effects.append(
                LogWarning(
                    "checks-exhausted: %(messages)d half messages reached the maximum of checks "
                    "and were moved to %(topic)s: their producers did not report an outcome; the "
                    "first one is %(message_id)s of group %(group)s",
                    {
                        "messages": len(step.given_up),
                        "topic": GIVEN_UP_TARGET[0],
                        "message_id": first.unique_key,
                        "group": first.group,
                    },
                )
            )
        return effects

    def _ask(
        self, record: HalfRecord, draft: bytes, place: tuple[int, int], wall_ms: int
    ) -> list[Effect]:
        """Send the half message to one of its producers: only to those who may know it.

        Every client can name itself a producer of any group.
        """
        offset, position = place
        topic = _topic_of(record)
        members = [
            one
            for one in self._members.producers(record.group)
            if self.may_know(one, topic, wall_ms)
        ]
        if not members:
            self.unasked += 1
            if record.group in self._lonely:
                return []
            self._lonely.add(record.group)
            return [
                LogWarning(
                    "producers-missing: producer group %(group)s has no connected producer; its "
                    "open transactions wait, the first one is %(message_id)s",
                    {"group": record.group, "message_id": record.unique_key},
                )
            ]
        self.asked += 1
        self._turn += 1
        member = members[self._turn % len(members)]
        key = record.unique_key or None
        request = CheckTransactionState(
            tran_state_table_offset=offset,
            commit_log_offset=position,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=encode_offset_id(self._store_host, position),
        )
        store_ms = self._transactions.store_ms
        body = question(draft, offset, position, store_ms, self._host)
        return [Notify(member.peer, request, (body,))]
