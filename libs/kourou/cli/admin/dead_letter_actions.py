"""The actions of the commands for dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from kourou.cli.admin.moments import as_text
from kourou.cli.admin.report import Report
from kourou.client.admin.dead_letters import DeadLetter
from kourou.client.admin.messages import MessageNotFound
from kourou.sync import Client

COLUMNS = ("broker", "offset", "message_id", "topic", "attempts", "died", "reason")


def listed(client: Client, group: str, count_max: int) -> Report:
    """The dead letters of a group."""
    found = client.admin.dead_letters.of(group, count_max=count_max)
    rows = [
        (
            letter.message.queue.broker_name,
            letter.message.offset,
            letter.message.message_id,
            letter.topic,
            letter.attempts,
            as_text(letter.message.store_timestamp),
            letter.reason,
        )
        for letter in found
    ]
    remarks = []
    if len(found) >= count_max:
        remarks.append(f"limited to the oldest {count_max}; there may be more (--max)")
    elif not found:
        remarks.append(_none(group))
    return Report(COLUMNS, rows, remarks)


def resent(client: Client, group: str, ids: Sequence[str], count_max: int) -> Report:
    """Send dead letters to their group again; marks them as handled if all were chosen and none
    failed.
    """
    letters = client.admin.dead_letters.of(group, count_max=count_max)
    chosen = [_named(letters, group, one) for one in ids] if ids else list(letters)
    outcomes = client.admin.dead_letters.resend(group, chosen)
    rows = [
        (one, error is None, None if error is None else str(error))
        for one, error in outcomes.items()
    ]
    failed = any(error is not None for error in outcomes.values())
    remarks = []
    if not ids and not failed and chosen:
        client.admin.dead_letters.deal_with(group, chosen)
    elif not chosen:
        remarks.append(_none(group))
    else:
        remarks.append(
            "they remain listed; discardDeadLetters -i removes them and all earlier ones"
        )
    return Report(("message_id", "sent", "error"), rows, remarks, failed=failed)


def discarded(client: Client, group: str, until: str | None, count_max: int) -> Report:
    """Mark dead letters as handled: those up to `until` in its queue, or all that are listed."""
    letters = list(client.admin.dead_letters.of(group, count_max=count_max))
    if until is not None:
        last = _named(letters, group, until).message
        letters = [
            one
            for one in letters
            if one.message.queue == last.queue and one.message.offset <= last.offset
        ]
    client.admin.dead_letters.deal_with(group, letters)
    rows = [(one.message.message_id, one.topic, one.reason) for one in letters]
    return Report(("message_id", "topic", "reason"), rows, [f"{len(rows)} are no longer listed"])


def _none(group: str) -> str:
    return f"the group {group} has no dead letters"


def _named(letters: Sequence[DeadLetter], group: str, message_id: str) -> DeadLetter:
    for letter in letters:
        message = letter.message
        if message_id in (message.message_id, message.offset_message_id):
            return letter
    raise MessageNotFound(
        f"group {group} has no dead letter {message_id} among those listed",
        hint="list more of them with --max",
    )
