"""Dead letters: lists and causes, redelivery of a selection, export."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.errors import BadRequest, GroupNotFound, KourouError, TopicNotFound
from kourou.model.limits import (
    DEAD_LETTERS_READ_MAX,
    MESSAGES_PER_PAGE_MAX,
    OUTCOMES_PER_PAGE_MAX,
    REDRIVE_DEAD_LETTERS_MAX,
    REDRIVE_RATE_MAX,
)
from kourou.model.names import DLQ_PREFIX, check_group, dlq_topic
from kourou_console import places
from kourou_console.answers import ALWAYS, disposition
from kourou_console.api.groups import all_groups
from kourou_console.gateway import Gateway
from kourou_console.leases.leases import wanted_of
from kourou_console.letters import Selection, Waiting, every_letter, letters_from, waiting
from kourou_console.lists import Listing, Missing, Name, asked
from kourou_console.message_bodies import Budget
from kourou_console.message_views import PREVIEW_BYTES, BodyMax, MessageView, view_of
from kourou_console.operation import BodyKind, NoParameters, Operation
from kourou_console.redrives import Fate, Job, Outcome, Redrives

CHAPTER = "Dead letters"

_encode = msgspec.json.Encoder().encode


class OfGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose dead letters are listed."""

    group: Name
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 50
    cursor: str | None = None
    body_max: BodyMax = PREVIEW_BYTES


class ExportOf(msgspec.Struct, frozen=True, kw_only=True):
    """A group."""

    group: Name


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter. `attempts` is the number of deliveries to the group, if known."""

    id: str
    cause: str
    reason: str | None
    origin_topic: str | None
    attempts: int
    died_ms: int
    message: MessageView


class CauseView(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of one cause: numbers and ids in their reasons are `#`. "" has no reason."""

    cause: str
    origin_topic: str | None
    count: int
    first_ms: int
    last_ms: int
    #: The reason of the newest dead letter, and its ID.
    reason: str | None
    example: str


class Letters(msgspec.Struct, frozen=True, kw_only=True):
    """Unhandled dead letters, oldest first.

    `causes_truncated`: there are more than were read. `total` excludes the queues in `missing`.
    """

    items: list[DeadLetterView]
    causes: list[CauseView]
    causes_truncated: bool
    total: int
    truncated: bool
    cursor: str | None
    as_of_ms: int
    missing: list[Missing] = []


class GroupDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A group with a dead-letter topic; `waiting` is the number of unhandled dead letters.

    Queues that the list's `missing` names are not counted.
    """

    group: str
    waiting: int


class RedriveWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to redeliver, and how; they match both `ids` and `filter`."""

    group: Name
    ids: (
        Annotated[list[str], msgspec.Meta(min_length=1, max_length=REDRIVE_DEAD_LETTERS_MAX)] | None
    ) = None
    filter: Selection | None = None
    rate_per_s: Annotated[int, msgspec.Meta(ge=1, le=REDRIVE_RATE_MAX)] = 10
    #: Send nothing, only report what would be sent.
    dry_run: bool = False
    #: Move the group's mark over sent dead letters, as far as they are consecutive.
    deal_with: bool = False


class OneJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and which of its outcomes to return."""

    id: Name
    begin: Annotated[int, msgspec.Meta(ge=0, le=REDRIVE_DEAD_LETTERS_MAX)] = msgspec.field(
        name="from", default=0
    )
    count: Annotated[int, msgspec.Meta(ge=0, le=OUTCOMES_PER_PAGE_MAX)] = 100


class JobName(msgspec.Struct, frozen=True):
    """A job."""

    id: Name


class OutcomeView(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a dead letter: waiting, sent, would_send, failed, not_sent, not_found."""

    id: str
    state: str
    error: str | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `state` is running, done (every selected letter was sent), failed, or stopped."""

    id: str
    group: str
    state: str
    dry_run: bool
    deal_with: bool
    selected: int
    sent: int
    failed: int
    #: Selected dead letters that are not sent (yet).
    left: int
    started_ms: int
    ended_ms: int | None
    error: str | None
    outcomes: list[OutcomeView]
    outcomes_total: int
    truncated: bool
    as_of_ms: int


async def list_dead_letters(gateway: Gateway, parameters: OfGroup) -> Letters:
    """The dead letters of a group, and their causes."""
    found = await waiting(gateway, parameters.group)
    missing: list[Missing] = []
    # Cursors include silent queues, so that their dead letters are listed when their brokers reply.
    offsets = found.marks | dict.fromkeys(found.silent, 0)
    if parameters.cursor is not None and offsets:
        told = places.read(parameters.cursor, list(offsets))
        if told.offsets is None:
            raise BadRequest("the cursor is of other queues", hint="start without a cursor")
        offsets = {queue: max(offsets[queue], at) for queue, at in told.offsets.items()}
    causes: dict[tuple[str, str | None], CauseView] = {}
    read = 0
    async for page in every_letter(gateway, found):
        missing += page.missing + page.damaged
        for letter in page.letters:
            _count(causes, letter)
        read += len(page.letters)
        if read >= DEAD_LETTERS_READ_MAX:
            break
    cursor = None
    letters: list[StoredDeadLetter] = []
    if found.marks:
        asking = {queue: offsets[queue] for queue in found.marks}
        shown = await letters_from(gateway, asking, parameters.count)
        letters = shown.letters
        if shown.offsets is not None:
            cursor = places.written(offsets | shown.offsets, gateway.clock.now_ms())
    budget = Budget()
    return Letters(
        items=[
            _letter(one, await view_of(one.message, budget, parameters.body_max)) for one in letters
        ],
        causes=sorted(causes.values(), key=lambda one: (-one.count, one.cause)),
        causes_truncated=read < found.total,
        total=found.total,
        truncated=cursor is not None,
        cursor=cursor,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


def _count(causes: dict[tuple[str, str | None], CauseView], letter: StoredDeadLetter) -> None:
    at_ms = letter.message.store_timestamp
    key = (letter.cause, letter.topic)
    former = causes.get(key)
    causes[key] = CauseView(
        cause=letter.cause,
        origin_topic=letter.topic,
        count=1 if former is None else former.count + 1,
        first_ms=at_ms if former is None else min(former.first_ms, at_ms),
        last_ms=at_ms if former is None else max(former.last_ms, at_ms),
        reason=letter.reason,
        example=letter.message.offset_message_id,
    )


def _letter(letter: StoredDeadLetter, message: MessageView) -> DeadLetterView:
    return DeadLetterView(
        id=letter.message.offset_message_id,
        cause=letter.cause,
        reason=letter.reason,
        origin_topic=letter.topic,
        attempts=letter.attempts,
        died_ms=letter.message.store_timestamp,
        message=message,
    )


async def list_dead_letter_groups(
    gateway: Gateway, parameters: NoParameters
) -> Listing[GroupDeadLetters]:
    """All groups with a dead-letter topic."""
    topics = await gateway.admin.topics.list()
    groups = [one.removeprefix(DLQ_PREFIX) for one in topics if one.startswith(DLQ_PREFIX)]

    async def of(group: str) -> Waiting:
        return await waiting(gateway, group)

    found, missing = await asked(groups, of)
    missing += [one for those in found.values() for one in those.missing]
    items = [GroupDeadLetters(group=group, waiting=those.total) for group, those in found.items()]
    items.sort(key=lambda one: (-one.waiting, one.group))
    return Listing(items=items, total=len(groups), as_of_ms=gateway.clock.now_ms(), missing=missing)


async def export_dead_letters(
    gateway: Gateway, parameters: ExportOf, request: web.BaseRequest
) -> web.StreamResponse:
    """All unhandled dead letters, one on each line."""
    found = await waiting(gateway, parameters.group)
    name = f"dead-letters-{parameters.group}.jsonl"
    headers = {
        **ALWAYS,
        "Content-Type": "application/x-ndjson",
        "Content-Disposition": disposition(name),
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    count = 0
    error: str | None = None
    try:
        async for page in every_letter(gateway, found):
            for letter in page.letters:
                message = await view_of(letter.message, Budget(), whole=True)
                await response.write(_encode(_letter(letter, message)) + b"\n")
                count += 1
            for lost in page.missing + page.damaged:
                error = f"{lost.what}: {lost.why}"
    except KourouError as failure:
        error = str(failure)
    end = {"end": error is None, "count": count, "error": error}
    await response.write(_encode(end) + b"\n")
    await response.write_eof()
    return response


async def begin_redrive(gateway: Gateway, parameters: NoParameters, wish: RedriveWish) -> JobView:
    """Start a redelivery job."""
    selection = wish.filter or Selection()
    wanted_of(selection.tag, selection.sql)  # reject an invalid filter before anything starts
    await _check_there(gateway, check_group(wish.group))
    job = gateway.part(Redrives).begin(
        check_group(wish.group),
        None if wish.ids is None else frozenset(wish.ids),
        selection,
        rate_per_s=wish.rate_per_s,
        dry_run=wish.dry_run,
        deal_with=wish.deal_with and not wish.dry_run,
    )
    return _job(gateway, job, 0, 0)


async def _check_there(gateway: Gateway, group: str) -> None:
    """Raises GroupNotFound if no broker has the group and it has no dead letters."""
    try:
        await gateway.admin.reading.queues(dlq_topic(group))
    except TopicNotFound:
        known, unasked = await all_groups(gateway)
        if not unasked and not any(group in every for every in known.values()):
            raise GroupNotFound(f"group {group!r} not found") from None


async def list_redrives(gateway: Gateway, parameters: NoParameters) -> Listing[JobView]:
    """The jobs since the gateway's start, the newest first."""
    jobs = list(gateway.part(Redrives).jobs.values())[::-1]
    items = [_job(gateway, one, 0, 0) for one in jobs]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())


async def get_redrive(gateway: Gateway, parameters: OneJob) -> JobView:
    """A job and the outcomes of its dead letters."""
    job = gateway.part(Redrives).job(parameters.id)
    return _job(gateway, job, parameters.begin, parameters.count)


async def stop_redrive(gateway: Gateway, parameters: JobName) -> JobView:
    """Stop a job."""
    redrives = gateway.part(Redrives)
    job = redrives.job(parameters.id)
    await redrives.stop(job)
    return _job(gateway, job, 0, 0)


def _job(gateway: Gateway, job: Job, begin: int, count: int) -> JobView:
    shown = job.outcomes[begin : begin + count]
    return JobView(
        id=job.id,
        group=job.group,
        state=job.state.value,
        dry_run=job.dry_run,
        deal_with=job.deal_with,
        selected=len(job.outcomes) - job.count(Fate.NOT_FOUND),
        sent=job.count(Fate.SENT),
        failed=job.count(Fate.FAILED, Fate.NOT_FOUND),
        left=job.count(Fate.WAITING, Fate.NOT_SENT),
        started_ms=job.started_ms,
        ended_ms=job.ended_ms,
        error=job.error,
        outcomes=[_outcome(one) for one in shown],
        outcomes_total=len(job.outcomes),
        truncated=begin + count < len(job.outcomes),
        as_of_ms=gateway.clock.now_ms(),
    )


def _outcome(one: Outcome) -> OutcomeView:
    return OutcomeView(id=one.id, state=one.fate.value, error=one.error)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/dead-letters",
        "list_dead_letters",
        "The unhandled dead letters of a group, oldest first, with counts by cause.",
        CHAPTER,
        list_dead_letters,
        Letters,
        parameters=OfGroup,
    ),
    Operation(
        "GET",
        "/v1/dead-letters/groups",
        "list_dead_letter_groups",
        "Groups with dead letters, and their number.",
        CHAPTER,
        list_dead_letter_groups,
        Listing[GroupDeadLetters],
    ),
    Operation(
        "GET",
        "/v1/dead-letters/export",
        "export_dead_letters",
        "All unhandled dead letters of a group with bodies, as JSON lines. The last line has "
        "`end`: true and the total; if it is missing, the export is incomplete.",
        CHAPTER,
        export_dead_letters,
        None,
        parameters=ExportOf,
        stream=True,
        media_type="application/x-ndjson",
    ),
    Operation(
        "POST",
        "/v1/dead-letters/redrives",
        "begin_redrive",
        "Redeliver selected dead letters to their group at a given rate; only that group receives "
        "them. With `dry_run` nothing is sent. The response is a job: poll it until it has ended. "
        "Its state is `done` only if every message was sent. An unknown group is 404.",
        CHAPTER,
        begin_redrive,
        JobView,
        body=RedriveWish,
        body_kind=BodyKind.JSON,
        status=202,
    ),
    Operation(
        "GET",
        "/v1/dead-letters/redrives",
        "list_redrives",
        "Recent redelivery jobs of this gateway, newest first, without results.",
        CHAPTER,
        list_redrives,
        Listing[JobView],
    ),
    Operation(
        "GET",
        "/v1/dead-letters/redrives/{id}",
        "get_redrive",
        "A redelivery job with the result of each message, from a given number.",
        CHAPTER,
        get_redrive,
        JobView,
        parameters=OneJob,
    ),
    Operation(
        "DELETE",
        "/v1/dead-letters/redrives/{id}",
        "stop_redrive",
        "Stop a redelivery job: messages already sent stay sent, the rest remain dead letters. An "
        "ended job does not change.",
        CHAPTER,
        stop_redrive,
        JobView,
        parameters=JobName,
    ),
)
