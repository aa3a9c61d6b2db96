"""All groups that this gateway has joined, and the look-up of leases by their tokens.

All members of a group must have the same subscriptions; otherwise messages are lost. So a receive
is rejected (409) if its filter or order differs from that of its group here, or its filter from
that of the group's other members.

State: soft, and the key of the tokens for the life of the process.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import hmac
import logging
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from itertools import count

from kourou.access.model import Action
from kourou.client.filters.expressions import Sql, Wanted, says
from kourou.client.filters.python_filter import Filter
from kourou.client.session.io_thread import background
from kourou.errors import BadRequest, Code, KourouError, Rejected
from kourou.model.limits import LEASE_GROUPS_MAX, LEASE_TOPICS_MAX
from kourou.model.names import DLQ_PREFIX, NOT_FOR_CLIENTS, RETRY_PREFIX, check_group, check_topic
from kourou.model.subscription import ConsumeFromWhere, MessageModel, Subscription
from kourou.telemetry.metrics import Family, Labels
from kourou_console.gateway import Gateway
from kourou_console.http.responses import Busy, HttpError
from kourou_console.leases.book import LeaseEnd
from kourou_console.leases.member import JOIN_GRACE_MS, GroupHeld, GroupMember, gone

GATEWAY_BYTES = 6
NUMBER_BYTES = 8
SIGNATURE_BYTES = 12
TOKEN_BYTES = GATEWAY_BYTES + NUMBER_BYTES + SIGNATURE_BYTES
TOKEN_LENGTH = -(-TOKEN_BYTES * 4 // 3)

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")

AS_RECEIVED = "use the `lease` of a received message, unchanged"


class LeaseTokens:
    """The tokens by which HTTP clients name leases: opaque, signed, valid for one run of a gateway.

        gateway (6 bytes)  number (8 bytes)  signature (12 bytes)      as base64url, 35 characters

    The signature prevents clients from acknowledging leases that they did not receive. The
    gateway's number is random at each start, so tokens of another gateway, or from before a
    restart, are distinguished from invalid ones.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._gateway = secrets.token_bytes(GATEWAY_BYTES)

    def make(self, number: int) -> str:
        """The token of a lease."""
        named = self._gateway + number.to_bytes(NUMBER_BYTES, "big")
        encoded = binascii.b2a_base64(named + self._sign(named), newline=False)
        return encoded[:TOKEN_LENGTH].translate(_TO_URL).decode()

    def read(self, token: str) -> int:
        """The number of a lease of this gateway. Raises HttpError (404) for any other text."""
        raw = _decoded(token)
        if raw is None:
            raise HttpError(
                HTTPStatus.NOT_FOUND, f"{token[:TOKEN_LENGTH]!r} is not a lease", hint=AS_RECEIVED
            )
        named, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        if named[:GATEWAY_BYTES] != self._gateway:
            raise HttpError(
                HTTPStatus.NOT_FOUND,
                "this lease belongs to another gateway, or to this one before a restart",
                hint=(
                    "acknowledge it at the gateway that issued it; after a restart its message "
                    "is redelivered"
                ),
            )
        if not hmac.compare_digest(signature, self._sign(named)):
            raise HttpError(
                HTTPStatus.NOT_FOUND, "this gateway never issued this lease", hint=AS_RECEIVED
            )
        return int.from_bytes(named[GATEWAY_BYTES:], "big")

    def _sign(self, named: bytes) -> bytes:
        return hashlib.blake2s(named, key=self._key, digest_size=SIGNATURE_BYTES).digest()


def _decoded(token: str) -> bytes | None:
    if len(token) != TOKEN_LENGTH or not token.isascii():
        return None
    text = token.encode().translate(_FROM_URL) + b"=" * (-TOKEN_LENGTH % 4)
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None
    return raw if len(raw) == TOKEN_BYTES else None


LOOK_S = 1.0

MEMBER_BITS = 40
"""A lease number consists of the number of its GroupMember and this many bits."""

_log = logging.getLogger("kourou.console.leases")


class Leases:
    """A component of the gateway (kourou_console.gateway)."""

    def __init__(self, gateway: Gateway) -> None:
        self.clock = gateway.clock
        self.tokens = LeaseTokens()
        self._client = gateway.client
        self._gateway = gateway
        self._ordinals = count(1)
        self._members: dict[str, GroupMember] = {}
        self._by_ordinal: dict[int, GroupMember] = {}
        self._looking: asyncio.Task[None] | None = None
        self._joining: set[asyncio.Task[bool]] = set()
        self.closed = False

    async def close(self) -> None:
        """Leave all groups; leased messages are redelivered."""
        self.closed = True
        if self._looking is not None:
            self._looking.cancel()
        if self._joining:
            await asyncio.wait(self._joining)
        members = list(self._members.values())
        self._members.clear()
        self._by_ordinal.clear()
        await asyncio.gather(*(member.leave() for member in members))

    @property
    def in_use(self) -> bool:
        """Whether a group is joined."""
        return bool(self._members)

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(sorted(self._members.values(), key=lambda one: one.group))

    def families(self, base: Labels) -> Iterator[Family]:
        """The numbers of leases, waiting receives and groups."""
        members = list(self._members.values())
        out = sum(member.book.out for member in members)
        waiting = sum(member.receiving for member in members)
        yield Family.gauge("kourou_gateway_leases", "", [(base, out)])
        yield Family.gauge("kourou_gateway_receives_waiting", "", [(base, waiting)])
        yield Family.gauge("kourou_gateway_lease_groups", "", [(base, len(members))])

    # -- receiving --------------------------------------------------------------------------------

    async def receive(
        self,
        group: str,
        topic: str,
        wanted: Wanted,
        *,
        count_max: int,
        invisible_ms: int,
        wait_ms: int,
        ordered: bool,
        begin: ConsumeFromWhere,
    ) -> tuple[GroupMember, list[GroupHeld]]:
        """Lease messages of a topic; joins the group if necessary.

        Raises TopicNotFound, HttpError (409) if subscriptions differ, Busy at a limit.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        check_group(group)
        check_topic(topic)
        # Each time: filter servers do not decide, and messages may be here already. And a broker
        # refuses the heartbeat of all the user's groups if one of them is not allowed.
        await self._gateway.need(Action.SUB, f"Group:{group}")
        await self._gateway.need(Action.SUB, f"Topic:{topic}")
        while True:
            member, joined = await self._joined(group, topic, wanted, ordered, begin)
            left_ms = max(0, round((until - loop.time()) * 1000))
            given = await member.receive(
                topic, count_max, invisible_ms, max(left_ms, JOIN_GRACE_MS if joined else 0)
            )
            if given or not member.left or self.closed:
                return member, given
            # The group was left in the meantime: join again.

    async def _joined(
        self, group: str, topic: str, wanted: Wanted, ordered: bool, begin: ConsumeFromWhere
    ) -> tuple[GroupMember, bool]:
        if self.closed:
            raise Busy("this gateway is shutting down")
        while (member := self._members.get(group)) is not None and member.left:
            async with member.changing:
                pass  # wait until `leave` is done
        if member is None:
            if len(self._members) >= LEASE_GROUPS_MAX:
                raise Busy(
                    f"this gateway consumes for {LEASE_GROUPS_MAX} groups already, the maximum"
                )
            ordinal = next(self._ordinals)
            numbers = count((ordinal << MEMBER_BITS) + 1)
            member = self._members[group] = self._by_ordinal[ordinal] = GroupMember(
                self._client,
                self.clock,
                group,
                begin,
                numbers.__next__,
                ordinal=ordinal,
                ordered=ordered,
            )
        if member.ordered != ordered:
            raise HttpError(
                HTTPStatus.CONFLICT,
                f"group {group} consumes {'in' if member.ordered else 'without'} order at "
                "this gateway",
                hint=f"use order={str(member.ordered).lower()}, or use another group",
            )
        use = member.topics.get(topic)
        if use is not None:
            _check_same(group, topic, use.wanted, wanted)
            return member, False
        # Shielded: a caller that disconnects must not leave a group half joined.
        task = asyncio.ensure_future(self._join(member, topic, wanted))
        self._joining.add(task)
        task.add_done_callback(self._join_ended)
        return member, await asyncio.shield(task)

    def _join_ended(self, task: asyncio.Task[bool]) -> None:
        self._joining.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the caller got it, or has disconnected

    async def _join(self, member: GroupMember, topic: str, wanted: Wanted) -> bool:
        async with member.changing:
            use = member.topics.get(topic)
            if use is not None:  # joined by another receive
                _check_same(member.group, topic, use.wanted, wanted)
                return False
            try:
                if member.left:
                    raise Busy(
                        (f"this gateway is leaving group {member.group}"), retry_after_ms=1_000
                    )
                await self._check_fit(member.group, topic, wanted)
                await member.join(topic, wanted)
            except BaseException:
                if not member.topics and self._members.get(member.group) is member:
                    self._forget(member)
                raise
        _log.info(
            "gateway-consumer-joined: group %(group)s: joined for %(topic)s",
            {"group": member.group, "topic": topic},
        )
        if self._looking is None and not self.closed:
            self._looking = background(self._keep_looking(), "looking after leases")
        return True

    async def _check_fit(self, group: str, topic: str, wanted: Wanted) -> None:
        """Check that the topic exists and that the other members have the same subscription."""
        if topic in NOT_FOR_CLIENTS or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise BadRequest(
                f"{topic} cannot be consumed directly",
                hint=(
                    "retries are delivered with their original topic; see dead letters at "
                    "/v1/dead-letters"
                ),
            )
        if sum(len(one.topics) for one in self._members.values()) >= LEASE_TOPICS_MAX:
            raise Busy(f"this gateway consumes {LEASE_TOPICS_MAX} topics already")
        await self._client.admin.topics.route(topic)
        if isinstance(wanted, Filter):
            stored = await self._client.admin.filters.list(group, wanted.name)
            if not any(stored.values()):
                raise HttpError(
                    HTTPStatus.NOT_FOUND,
                    f"group {group} has no filter {wanted.name!r}",
                    hint=f"upload it first: PUT /v1/filters/{group}/{wanted.name}",
                )
        try:
            reported = await self._client.admin.groups.connections(group)
        except KourouError as error:
            if error.wire_code in _NOBODY:
                return
            raise
        others = [one for one in reported.connections if one.client_id != self._client.client_id]
        if not others:
            return
        if reported.message_model is MessageModel.BROADCASTING:
            raise HttpError(
                HTTPStatus.CONFLICT,
                f"the consumers of {group} use broadcasting, which leases do not support",
                hint="use another group",
            )
        known = reported.subscriptions.get(topic)
        if known is not None and not says(known, wanted):
            raise _clash(
                group, topic, _description(known), _wanted(wanted), f"{len(others)} other members"
            )

    # -- acknowledging ----------------------------------------------------------------------------

    def find(
        self, token: str, *, done: LeaseEnd | None = None
    ) -> tuple[GroupMember, GroupHeld] | None:
        """The message of a lease and its group; None if the lease ended by `done` already.

        Raises HttpError: 404 if it is not a lease of this gateway, 410 if it has ended.
        """
        number = self.tokens.read(token)
        member = self._by_ordinal.get(number >> MEMBER_BITS)
        found = None if member is None else member.find(number)
        if isinstance(found, LeaseEnd):
            if found is done:
                return None
            raise gone(found)
        if member is not None and found is not None:
            return member, found
        raise HttpError(
            HTTPStatus.GONE,
            "this lease has ended: the gateway left the group, or the lease is too old",
            hint="if it was not acknowledged, its message is redelivered",
        )

    # -- leaving ----------------------------------------------------------------------------------

    def _forget(self, member: GroupMember) -> None:
        del self._members[member.group], self._by_ordinal[member.ordinal]

    async def leave(self, group: str) -> bool:
        """Leave a group now; False if this gateway has not joined it."""
        member = self._members.get(group)
        if member is None:
            return False
        async with member.changing:
            if self._members.get(group) is member:
                member.left = True
                await member.leave()
                self._forget(member)
        return True

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Check every group once: expired leases, lost queues, idle topics."""
        for member in list(self._members.values()):
            try:
                await self._look_after(member)
            except KourouError as error:  # the next check is in a second
                _log.warning(
                    "gateway-consumer-check-failed: group %(group)s: %(error)s",
                    {"group": member.group, "error": error},
                )

    async def _look_after(self, member: GroupMember) -> None:
        if member.changing.locked():
            return
        if member.topics and member.is_idle():
            _log.info(
                "gateway-consumer-left: left group %(group)s: idle for 3 minutes",
                {"group": member.group},
            )
            await self.leave(member.group)
            return
        await member.look()


_NOBODY = (Code.CONSUMER_NOT_ONLINE, Code.SUBSCRIPTION_GROUP_NOT_EXIST)


def wanted_of(tags: tuple[str, ...], sql: str | None) -> str | Sql:
    """The subscription of a request. Raises BadRequest."""
    if sql is not None:
        if tags:
            raise BadRequest("give tags or sql, not both")
        return Sql(sql)
    if not tags:
        return "*"
    for tag in tags:
        if "||" in tag or not tag.strip() or tag == "*":
            raise BadRequest(f"{tag!r} is not a tag", hint="one tag in each; none at all means all")
    return " || ".join(sorted(set(tags)))


def subscribed(tags: tuple[str, ...], sql: str | None, uploaded: str | None) -> Wanted:
    """The subscription of a receive: as `wanted_of`, or a Python filter by its name."""
    if uploaded is None:
        return wanted_of(tags, sql)
    if tags or sql is not None:
        raise BadRequest("give a filter, or tags or sql, not both")
    return Filter.named(uploaded)


def in_short(wanted: Wanted) -> str:
    """The subscription as lists show it."""
    if isinstance(wanted, Filter):
        return wanted.name
    return wanted.expression if isinstance(wanted, Sql) else wanted


def _wanted(wanted: Wanted) -> str:
    return f"{'tags' if isinstance(wanted, str) else 'the filter'} {in_short(wanted)!r}"


def _description(known: Subscription) -> str:
    what = "the filter" if known.expression_type != "TAG" or known.class_filter_mode else "tags"
    return f"{what} {known.expression!r}"


def _check_same(group: str, topic: str, here: Wanted, wanted: Wanted) -> None:
    if here != wanted:
        raise _clash(group, topic, _wanted(here), _wanted(wanted), "this gateway")


def _clash(group: str, topic: str, known: str, wanted: str, who: str) -> Rejected:
    return HttpError(
        HTTPStatus.CONFLICT,
        f"subscriptions clash: the group {group} consumes {topic} by {known} ({who}), "
        f"not by {wanted}",
        hint=(
            "all consumers of a group must have the same subscription: use another group for "
            "another filter, or leave this group first (DELETE /v1/groups/{group}/leases)"
        ),
    )
