"""Users of the brokers at this console: who proves a secret, or has a certificate, is that user.

    Authorization: Basic base64(USER:SECRET)        programs, with each request; or the password
    Authorization: Bearer kourou_...                programs, with an API token of the user
    the cookie of a session                         pages (kourou_console.http.sessions)
    a TLS certificate of the connection             both

Brokers check the secret; the console keeps only a keyed digest of it, and sends them the SHA-256 of
a token. A user who was checked less than FRESH_MS ago is served at once; after that, a request
waits for the next check. So what began with a former secret ends within a second. If brokers do not
answer in CHECK_WAIT_S, it is served nevertheless, until the last check is STALE_MS old: brokers
decide each request anyway, so a disabled user gets nothing.

What a person types is first compared with the hash of the user's password, which brokers reply
with: only if it is not the password they get it, as it may be the secret. The console computes the
hash itself, in threads, because that takes long; so does every wrong secret, also of unknown users.

Wrong secrets delay the next attempt, 2, 4, 8 ... s, after those that are free (AttemptLimit): for
the same user from the same network, up to 15 minutes; for the same user from anywhere, and for any
user from the same network, up to 30 s. So who knows a user's name cannot keep the user out from
elsewhere, and many people may share a network: an office, or a proxy. All loopback addresses are
one network with more free attempts, as a proxy may be there. An attempt counts from its start, so
that parallel ones are delayed, too. Who is signed in is not delayed.

State: soft, bounded: users with the digests of their secrets, and failed attempts.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from kourou.access.api_token import OF_NO_USER, id_of, is_token, token_digest
from kourou.access.model import ANONYMOUS
from kourou.access.signature import same_secret
from kourou.errors import KourouError, NoPermission, Rejected, Throttled
from kourou.model.limits import (
    GATEWAY_ATTEMPTS_MAX,
    GATEWAY_HASHES_AT_ONCE_MAX,
    GATEWAY_SIGN_INS_AT_ONCE_MAX,
    GATEWAY_SIGN_INS_MAX,
    SECRET_LENGTH_MAX,
    USER_NAME_LENGTH_MAX,
)
from kourou.operations import Right
from kourou_console.http.call import Caller
from kourou_console.http.responses import Busy, HttpError

FRESH_MS = 1_000
CHECK_WAIT_S = 1.0
STALE_MS = 10_000
IDLE_MS = 1_800_000

FIRST_WAIT_MS = 2_000
FORGET_MS = 3_600_000
"""Failed attempts count for so long after the last one."""

WRONG = "unknown user or wrong secret"
WRONG_TOKEN = "unknown or revoked token"
_log = logging.getLogger("kourou.console.access")


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """How many failed attempts are free, and the longest wait after more of them."""

    of: str
    free: int
    longest_wait_ms: int

    def wait_ms(self, failures: int) -> int:
        """The wait after so many failures."""
        beyond = failures - self.free
        return 0 if beyond < 0 else min(FIRST_WAIT_MS << min(beyond, 16), self.longest_wait_ms)


OF_PLACE = AttemptLimit("user and network", 5, 900_000)
OF_USER = AttemptLimit("user", 100, 30_000)
OF_NETWORK = AttemptLimit("network", 100, 30_000)
OF_LOOPBACK = AttemptLimit("loopback", 1_000, 30_000)

AttemptKey = tuple[AttemptLimit, str]
Check = Callable[[], Awaitable["SignedIn"]]
"""What brokers say about a credential. Raises _WrongSecret."""


class _WrongSecret(Exception):
    """The user does not exist, may not sign in, or has another secret; or a token, with the reason.

    Its text goes to the caller.
    """


class TooManyAttempts(Throttled):
    """An attempt of `who` that came too early after failed ones."""

    who = ""


class CredentialCheck(Protocol):
    """What brokers say about secrets; kourou.client.admin.users.UsersApi has it."""

    async def credential(self, name: str, secret: str) -> Mapping[str, str]:
        """The id of the secret at each broker; empty if it is wrong."""
        ...

    async def has_credential(self, name: str, credential: Mapping[str, str]) -> bool:
        """Whether the user may still sign in, and still has that secret."""
        ...

    async def password_hash(self, name: str) -> str:
        """The hash of the user's password; "" if there is none, or the user may not sign in."""
        ...

    async def user_of_certificate(self, subject: str) -> str:
        """The user to whom certificates with a subject belong; "" if to none who may sign in."""
        ...

    async def sender_of_token(self, digest: str) -> str:
        """The name of the token with a SHA-256, USER:ID; "" if there is none.

        Raises Rejected with the reason if it is not valid any more.
        """
        ...


@dataclass(slots=True)
class SignedIn:
    """A user who proved a secret, or has a certificate with `subject`; times are monotonic ms.

    `user` is "" if certificates with the subject belong to no user. With a token, whose SHA-256 is
    `token`, it is the token's name. `password` is the hash of a password that was proved.
    """

    user: str
    credential: Mapping[str, str]
    checked_ms: int
    used_ms: int
    subject: str = ""
    token: str = ""
    password: str = field(default="", repr=False)
    ended: bool = False
    check: asyncio.Task[None] | None = None

    @property
    def caller(self) -> Caller:
        """The user as the caller of a request: brokers decide its rights."""
        return Caller(self.user, Right.ADMIN, self.user)


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_ms: int = 0
    until_ms: int = 0


class Attempts:
    """Delays attempts after failed ones, by what each limit is for."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._failures: OrderedDict[AttemptKey, _Failures] = OrderedDict()

    def begin(self, keys: Sequence[AttemptKey]) -> None:
        """Count an attempt as failed until it succeeds. Raises Throttled if it comes too early."""
        now_ms = self._now_ms()
        for key in keys:
            one = self._failures.get(key)
            if one is not None and one.last_ms + FORGET_MS <= now_ms:
                del self._failures[key]
            elif one is not None and one.until_ms > now_ms:
                raise TooManyAttempts(
                    "too many attempts with a wrong secret", retry_after_ms=one.until_ms - now_ms
                )
        for key in keys:
            one = self._failures.pop(key, None) or _Failures(last_ms=now_ms)
            one.count += 1
            one.until_ms = now_ms + key[0].wait_ms(one.count)
            self._failures[key] = one
        while len(self._failures) > GATEWAY_ATTEMPTS_MAX:
            del self._failures[self._least(now_ms)]

    def _least(self, now_ms: int) -> AttemptKey:
        """The oldest that has free attempts left, else that does not wait, else of all.

        So attempts for many names do not free a name whose attempts are used up.
        """
        entries = self._failures.items
        free = (key for key, one in entries() if one.count < key[0].free)
        idle = (key for key, one in entries() if one.until_ms <= now_ms)
        return next(free, None) or next(idle, None) or next(iter(self._failures))

    def failed(self, keys: Sequence[AttemptKey]) -> None:
        """Note that the secret of an attempt was wrong."""
        for key in keys:
            if key in self._failures:
                self._failures[key].last_ms = self._now_ms()

    def undo(self, keys: Sequence[AttemptKey]) -> None:
        """Take back an attempt whose secret was not wrong; former failures still count."""
        for key in keys:
            one = self._failures.get(key)
            if one is not None:
                one.count -= 1
                one.until_ms = 0
                if one.count <= 0:
                    del self._failures[key]

    def forgive(self, key: AttemptKey) -> None:
        """Forget the failures of a user who proved the secret."""
        self._failures.pop(key, None)


class SignIns:
    """The users who are signed in. `now_ms` is monotonic. Used on one event loop."""

    def __init__(self, brokers: CredentialCheck, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._now_ms = now_ms
        self._attempts = Attempts(now_ms)
        self._key = secrets.token_bytes(32)
        self._by_secret: OrderedDict[bytes, SignedIn] = OrderedDict()
        self._proving: dict[bytes, asyncio.Task[SignedIn]] = {}
        self._hashes = asyncio.Semaphore(GATEWAY_HASHES_AT_ONCE_MAX)

    async def by_basic(self, headers: Mapping[str, str], source: str) -> SignedIn:
        """The user of a request from an IP address, with its secret in the header Authorization.

        Raises HttpError (401), Throttled, Busy, or what keeps brokers from an answer.
        """
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            raise unauthorized(headers, "sign in as a user of the brokers")
        try:
            user, secret = _basic(given)
        except _WrongSecret:
            raise unauthorized(headers, WRONG) from None
        key = self._digest(user, secret)
        one = self._by_secret.get(key)
        if one is None or not await self.stands(one):
            one = await self.prove(user, secret, headers, source)
        self._keep(key, one)
        return one

    async def by_token(self, headers: Mapping[str, str], source: str) -> SignedIn:
        """The sender of a request from an IP address, with a token in the header Authorization.

        Raises as `by_basic`.
        """
        token = headers.get("Authorization", "").partition(" ")[2].strip()
        if not is_token(token):
            raise _token_refused(WRONG_TOKEN)
        key = self._digest("", token)  # no secret is one of the user ""
        one = self._by_secret.get(key)
        if one is None or not await self.stands(one):
            digest = token_digest(token)
            check = partial(self._check_token, digest)
            try:
                one = await self._once(key, f":{id_of(digest)}", check, source)
            except _WrongSecret as error:
                raise _token_refused(str(error), noted=True) from None
        self._keep(key, one)
        return one

    async def by_certificate(self, subject: str) -> SignedIn | None:
        """The user of a connection whose certificate has a subject; None if it belongs to none.

        Raises what keeps brokers from an answer.
        """
        if not subject:
            return None
        key = self._digest("", subject)  # no secret is one of the user ""
        one = self._by_secret.get(key)
        if one is None or not await self.stands(one):
            now_ms = self._now_ms()
            one = SignedIn(await self._owner(subject), {}, now_ms, now_ms, subject)
        self._keep(key, one)
        return one if one.user else None

    def _keep(self, key: bytes, one: SignedIn) -> None:
        one.used_ms = self._now_ms()
        self._by_secret[key] = one
        self._by_secret.move_to_end(key)
        while len(self._by_secret) > GATEWAY_SIGN_INS_MAX:
            self._by_secret.popitem(last=False)

    async def _owner(self, subject: str) -> str:
        try:
            return await self._brokers.user_of_certificate(subject)
        except NoPermission:  # this is no console of that user
            return ""

    async def prove(
        self, user: str, secret: str, headers: Mapping[str, str], source: str
    ) -> SignedIn:
        """Let the brokers check a secret. Raises as `by_basic`."""
        key = self._digest(user, secret)
        try:
            return await self._once(key, user, partial(self._check_secret, user, secret), source)
        except _WrongSecret as error:
            raise unauthorized(headers, str(error), noted=True) from None

    async def _once(self, key: bytes, who: str, check: Check, source: str) -> SignedIn:
        """The result of an attempt of `who`; concurrent requests are one attempt."""
        proving = self._proving.get(key)
        if proving is None:
            if len(self._proving) >= GATEWAY_SIGN_INS_AT_ONCE_MAX:
                raise Busy(
                    f"{GATEWAY_SIGN_INS_AT_ONCE_MAX} users are signing in already, the maximum"
                )
            proving = asyncio.ensure_future(self._attempt(who, check, source))
            self._proving[key] = proving
            proving.add_done_callback(partial(self._proved, key))
        found: SignedIn = await _result(proving)
        return found

    def _proved(self, key: bytes, task: asyncio.Task[SignedIn]) -> None:
        self._proving.pop(key, None)
        _retrieved(task)

    def _digest(self, user: str, secret: str) -> bytes:
        text = f"{user}\0{secret}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    async def _attempt(self, who: str, check: Check, source: str) -> SignedIn:
        """Raises _WrongSecret if the check does."""
        network = _network(source)
        place = (OF_PLACE, f"{network} {who}")
        keys = [place, (OF_USER, who), (OF_NETWORK if network else OF_LOOPBACK, network)]
        try:
            self._attempts.begin(keys)
        except TooManyAttempts as error:
            error.who = who
            raise
        try:
            found = await check()
        except KourouError:  # brokers did not say whether it is wrong
            self._attempts.undo(keys)
            raise
        except BaseException as error:
            if isinstance(error, _WrongSecret):
                _log.warning(
                    "sign-in-refused: %(reason)s: %(user)r from %(source)s",
                    {"reason": error, "user": who, "source": source},
                )
            self._attempts.failed(keys)
            raise
        self._attempts.undo(keys)
        self._attempts.forgive(place)
        return found

    async def _check_secret(self, user: str, secret: str) -> SignedIn:
        """Raises _WrongSecret if it is wrong."""
        now_ms = self._now_ms()
        try:
            hashed = await self._brokers.password_hash(user)
            if hashed and await self._is_password(secret, hashed):
                return SignedIn(user, {}, now_ms, now_ms, password=hashed)
            found = await self._brokers.credential(user, secret)
        except NoPermission as error:
            _log.warning(
                "sign-in-forbidden: user %(user)r cannot sign in here: %(reason)s",
                {"user": user, "reason": error},
            )
            raise _WrongSecret(WRONG) from error
        if found:
            return SignedIn(user, dict(found), now_ms, now_ms)
        if not hashed:
            await self._is_password(secret, OF_NO_USER)  # takes as long as for other users
        raise _WrongSecret(WRONG)

    async def _is_password(self, secret: str, hashed: str) -> bool:
        async with self._hashes:
            return await asyncio.to_thread(_is_password, secret, hashed)

    async def _check_token(self, digest: str) -> SignedIn:
        """Raises _WrongSecret if no token has the SHA-256, or it is not valid any more."""
        now_ms = self._now_ms()
        name = await self._sender(digest)
        if not name:
            raise _WrongSecret(WRONG_TOKEN)
        return SignedIn(name, {}, now_ms, now_ms, token=digest)

    async def _sender(self, digest: str) -> str:
        try:
            return await self._brokers.sender_of_token(digest)
        except NoPermission:  # this is no console of that user
            return ""
        except Rejected as error:
            raise _WrongSecret(error.message) from error

    async def stands(self, one: SignedIn) -> bool:
        """Whether a user is still signed in. Raises what keeps all brokers from an answer."""
        now_ms = self._now_ms()
        age_ms = now_ms - one.checked_ms
        if one.ended or now_ms - one.used_ms >= IDLE_MS:
            return False
        if age_ms >= FRESH_MS and one.check is None:
            one.check = asyncio.ensure_future(self._check(one))
            one.check.add_done_callback(_retrieved)
        if one.check is not None:
            if age_ms >= STALE_MS:
                await _result(one.check)
            else:
                await asyncio.wait({one.check}, timeout=CHECK_WAIT_S)
        return not one.ended

    async def _check(self, one: SignedIn) -> None:
        now_ms = self._now_ms()
        try:
            if one.subject:
                is_same = await self._owner(one.subject) == one.user
            elif one.token:
                is_same = await self._sender(one.token) == one.user
            elif one.password:
                is_same = same_secret(await self._brokers.password_hash(one.user), one.password)
            else:
                is_same = await self._brokers.has_credential(one.user, one.credential)
            if is_same:
                one.checked_ms = now_ms
            else:
                one.ended = True
        except (NoPermission, _WrongSecret):
            one.ended = True
        finally:
            one.check = None


async def _result(task: asyncio.Task[Any]) -> Any:
    """The result of a task that others wait for, too: it outlives this caller."""
    return await asyncio.shield(task)


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # a request that waits for it gets it


def _is_password(password: str, of_user: str) -> bool:
    from kourou.service.passwords import is_password  # only passwords need cryptography

    return is_password(password, of_user)


def _basic(given: str) -> tuple[str, str]:
    """User and secret. Raises _WrongSecret if these cannot be any."""
    try:
        text = base64.b64decode(given.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        raise _WrongSecret from None
    user, _, secret = text.partition(":")
    if not can_be(user, secret):
        raise _WrongSecret
    return user, secret


def can_be(user: str, secret: str) -> bool:
    """Whether brokers may know such a user, and such a secret or password."""
    is_name = 0 < len(user) <= USER_NAME_LENGTH_MAX and ":" not in user
    return is_name and 0 < len(secret) <= SECRET_LENGTH_MAX


def _network(source: str) -> str:
    """The /24 or /48 network of an address; empty for loopback, and for what is no address."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return ""
    bits = 24 if address.version == 4 else 48  # one customer of a provider may have a /48
    return str(ipaddress.ip_network((address, bits), strict=False))


def claimed_user(headers: Mapping[str, str]) -> str:
    """The user whom a request names, or `anonymous`: for the audit, as nothing is proved."""
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ANONYMOUS
    try:
        return _basic(given)[0]
    except _WrongSecret:
        return ANONYMOUS


def unauthorized(headers: Mapping[str, str], text: str, *, noted: bool = False) -> HttpError:
    """401. A browser that is asked for Basic would ask the person by itself, and remember.

    `noted`: brokers have refused it, and have it in their audit.
    """
    is_page = "Sec-Fetch-Site" in headers
    return HttpError(
        HTTPStatus.UNAUTHORIZED,
        text,
        hint="log in as a user of the brokers, with its secret or password"
        if is_page
        else "user and secret: curl -u USER:SECRET",
        challenge='Session realm="kourou"' if is_page else 'Basic realm="kourou", charset="UTF-8"',
        noted=noted,
    )


def _token_refused(text: str, *, noted: bool = False) -> HttpError:
    """401 for a token."""
    return HttpError(
        HTTPStatus.UNAUTHORIZED,
        text,
        hint="kourou user token create USER --scope ROLE",
        challenge='Bearer realm="kourou", error="invalid_token"',
        noted=noted,
    )
