"""Sessions of people who signed in with a browser.

    POST /session {"user": "till", "secret": "..."}     begin one: a cookie, and a token for changes
    GET /session                                        who is signed in, and how one signs in
    DELETE /session                                     end it

The cookie holds 256 random bits, new at each sign-in; the console keeps their SHA-256. No script
and no other site gets it (HttpOnly, SameSite=Strict, no Domain). It has the prefix `__Host-` and
Secure if the page came by https: to this console, or to a proxy, which the header Origin says. A
session ends after IDLE_MS without a request, after SESSION_MS, at a sign-out, and as soon as the
user is disabled or has another secret (kourou_console.http.sign_in).

A change needs the header Csrf-Token with the token of the session: a form cannot set a header, and
no page of another site may (there is no CORS).

State: soft, bounded: digests of cookies and their users.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

import msgspec
from aiohttp import web

from kourou.errors import NoPermission
from kourou.model.limits import GATEWAY_SIGN_IN_BYTES_MAX, GATEWAY_SIGN_INS_MAX
from kourou_console.http.request_input import Bodies, decoded_json
from kourou_console.http.responses import HttpError, result_response
from kourou_console.http.sign_in import WRONG, SignedIn, SignIns, can_be, unauthorized

PATH = "/session"
COOKIE = "kourou-session"
SECURE_COOKIE = f"__Host-{COOKIE}"
CSRF_HEADER = "Csrf-Token"
SESSION_MS = 43_200_000
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Credentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a sign-in."""

    user: str
    secret: str


_decode = msgspec.json.Decoder(Credentials).decode


class SessionView(msgspec.Struct, frozen=True):
    """Who is signed in. `csrf`: the token for changes, null without a session."""

    #: users or tokens; null: no sign-in is needed.
    sign_in: str | None
    user: str | None = None
    csrf: str | None = None


@dataclass(slots=True)
class _Session:
    who: SignedIn
    csrf: str
    began_ms: int


class Sessions:
    """The sessions of one console. `now_ms` is monotonic. Used on one event loop."""

    def __init__(self, sign_ins: SignIns, now_ms: Callable[[], int]) -> None:
        self.sign_ins = sign_ins
        self._now_ms = now_ms
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._key = secrets.token_bytes(32)
        self._bodies = Bodies()

    async def who(self, request: web.BaseRequest) -> SignedIn | None:
        """The user whose session a request belongs to; None without one.

        Raises NoPermission for a change without the session's token, and what keeps all brokers
        from an answer.
        """
        found = await self._found(request)
        if found is None:
            return None
        given = request.headers.get(CSRF_HEADER, "").encode("utf-8", "surrogateescape")
        if request.method not in SAFE_METHODS and not hmac.compare_digest(
            given, found.csrf.encode()
        ):
            raise NoPermission(
                f"a change by a session needs the header {CSRF_HEADER}",
                hint="GET /session returns its value; programs send user and secret instead",
            )
        return found.who

    async def answer(self, request: web.BaseRequest, source: str) -> web.Response:
        """The response to a request for PATH. Raises HttpError, and as `SignIns.prove`."""
        if request.method == "POST":
            return await self._begin(request, source)
        if request.method == "DELETE":
            await self.who(request)
            return self._end(request)
        if request.method not in SAFE_METHODS:
            raise HttpError(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{request.method[:20]} is not supported here",
                allow="DELETE, GET, HEAD, POST",
            )
        found = await self._found(request)
        if found is None:
            return result_response(SessionView("users"), HTTPStatus.OK)
        return result_response(SessionView("users", found.who.user, found.csrf), HTTPStatus.OK)

    # -- one session ------------------------------------------------------------------------------

    async def _begin(self, request: web.BaseRequest, source: str) -> web.Response:
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the body's type is {kind[:60]!r}",
                hint="send the header Content-Type: application/json",
            )
        with self._bodies.of(request, GATEWAY_SIGN_IN_BYTES_MAX) as body:
            given: Credentials = decoded_json(_decode, await body.read())
        if not can_be(given.user, given.secret):
            raise unauthorized(request.headers, WRONG)
        proved = await self.sign_ins.prove(given.user, given.secret, request.headers, source)
        self._drop(request.cookies)
        text = secrets.token_urlsafe(32)
        now_ms = self._now_ms()
        # A value of its own: it is used, and may end, apart from others of the same user.
        who = replace(proved, used_ms=now_ms, check=None)
        csrf = hmac.digest(self._key, text.encode(), "sha256").hex()
        self._sessions[_digest(text)] = _Session(who, csrf, now_ms)
        while len(self._sessions) > GATEWAY_SIGN_INS_MAX:
            self._sessions.popitem(last=False)
        answer = result_response(SessionView("users", who.user, csrf), HTTPStatus.OK)
        secure = request.secure or request.headers.get("Origin", "").startswith("https:")
        answer.set_cookie(
            SECURE_COOKIE if secure else COOKIE,
            text,
            path="/",
            secure=secure,
            httponly=True,
            samesite="Strict",
        )
        return answer

    def _end(self, request: web.BaseRequest) -> web.Response:
        self._drop(request.cookies)
        answer = result_response(None, HTTPStatus.NO_CONTENT)
        for name in (COOKIE, SECURE_COOKIE):
            if name in request.cookies:
                answer.del_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True)
        return answer

    def _drop(self, cookies: Mapping[str, str]) -> None:
        for text in _session_values(cookies):
            self._sessions.pop(_digest(text), None)

    async def _found(self, request: web.BaseRequest) -> _Session | None:
        for text in _session_values(request.cookies):
            key = _digest(text)
            found = self._sessions.get(key)
            if found is None:
                continue
            now_ms = self._now_ms()
            if now_ms - found.began_ms >= SESSION_MS or not await self.sign_ins.stands(found.who):
                self._sessions.pop(key, None)
                continue
            if self._sessions.get(key) is not found:  # ended while it was checked
                continue
            found.who.used_ms = now_ms
            self._sessions.move_to_end(key)
            return found
        return None


def _session_values(cookies: Mapping[str, str]) -> list[str]:
    return [cookies[name] for name in (SECURE_COOKIE, COOKIE) if name in cookies]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def open_view(*, tokens: bool) -> web.Response:
    """The response of GET /session at a console without users."""
    return result_response(SessionView("tokens" if tokens else None), HTTPStatus.OK)
