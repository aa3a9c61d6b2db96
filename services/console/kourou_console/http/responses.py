"""HTTP responses: results, and errors as problem details (RFC 9457) with Kourou's codes.

    Rejected       4xx    the caller must change the request
    Unavailable    503    nothing was done; a retry may succeed. Throttled is 429
    UnknownOutcome 504    it may have been done
    Corrupt        502    data of the cluster failed a check
    anything else  500    a bug, which is logged here and not shown to the caller

An error class of a chapter may set its own status with the attribute `http_status`.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from kourou.errors import (
    BadRequest,
    Code,
    ConfigError,
    Corrupt,
    GroupNotFound,
    KourouError,
    MessageIllegal,
    NoPermission,
    Rejected,
    Throttled,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from kourou_console.http.call import Answered, Content

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = 1


class Problem(msgspec.Struct, frozen=True):
    """The body of every answer that is an error. `code` is Kourou's (docs/reference/errors.md)."""

    type: str
    title: str
    status: int
    detail: str
    hint: str
    code: int
    code_name: str
    #: Whether the same request may succeed later.
    retryable: bool


class HttpError(Rejected):
    """An error with an HTTP status of its own: too large, wrong media type, and so on."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        hint: str = "",
        allow: str = "",
        challenge: str = 'Bearer realm="kourou"',
        noted: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        #: Whether brokers refused the request, so that it is in their audit.
        self.noted = noted
        #: The header WWW-Authenticate of a 401.
        self.challenge = challenge
        #: The header Allow of a 405.
        self.allow = allow


class Busy(Throttled):
    """The gateway is overloaded; the text names the limit."""


_BY_CLASS: tuple[tuple[type[KourouError], HTTPStatus], ...] = (
    (MessageIllegal, HTTPStatus.UNPROCESSABLE_ENTITY),
    (TopicNotFound, HTTPStatus.NOT_FOUND),
    (GroupNotFound, HTTPStatus.NOT_FOUND),
    (NoPermission, HTTPStatus.FORBIDDEN),
    (ConfigError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BadRequest, HTTPStatus.BAD_REQUEST),
    (Busy, HTTPStatus.SERVICE_UNAVAILABLE),
    (Throttled, HTTPStatus.TOO_MANY_REQUESTS),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnknownOutcome, HTTPStatus.GATEWAY_TIMEOUT),
    (Corrupt, HTTPStatus.BAD_GATEWAY),
)
_BY_CODE: dict[Code, HTTPStatus] = {
    Code.QUERY_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.TOPIC_NOT_EXIST: HTTPStatus.NOT_FOUND,
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: HTTPStatus.NOT_FOUND,
    Code.SUBSCRIPTION_PARSE_FAILED: HTTPStatus.BAD_REQUEST,
    Code.NO_PERMISSION: HTTPStatus.FORBIDDEN,
    Code.PULL_OFFSET_MOVED: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    Code.TOPIC_EXIST_ALREADY: HTTPStatus.CONFLICT,
    Code.CONSUMER_NOT_ONLINE: HTTPStatus.CONFLICT,
    Code.CONSUME_MSG_TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
}
_HINTS: dict[Code, str] = {
    Code.TOPIC_NOT_EXIST: "check the name, or create the topic: PUT /v1/topics/NAME",
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: (
        "check the name; a group is created by its first consumer, or by PUT /v1/groups/NAME"
    ),
}
"""What to do about errors without a hint of their own."""


def status_of(error: BaseException) -> HTTPStatus:
    """The HTTP status of an error."""
    if isinstance(error, HttpError):
        return error.status
    if not isinstance(error, KourouError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    own_status = getattr(error, "http_status", None)
    if own_status is not None:
        return HTTPStatus(own_status)
    if isinstance(error, Rejected) and error.wire_code in _BY_CODE:
        return _BY_CODE[error.wire_code]
    for kind, status in _BY_CLASS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.CONFLICT  # rejected by a server, with a code that has no class here


def problem_of(error: BaseException) -> Problem:
    """The body for an error. Details of a bug are not shown."""
    status = status_of(error)
    if not isinstance(error, KourouError):
        detail, hint = "internal error of the gateway", "see the gateway's log"
        code, retryable = Code.SYSTEM_ERROR, False
    else:
        detail, hint = error.message, error.hint
        code, retryable = error.wire_code, error.retryable
        hint = hint or _HINTS.get(code, "")
    if isinstance(error, HttpError):
        kind, title = f"http-{int(status)}", status.phrase
    else:
        kind, title = f"code-{int(code)}", _title(error, code)
    return Problem(
        f"/docs#{kind}", title, int(status), detail, hint, int(code), code.name, retryable
    )


def _title(error: BaseException, code: Code) -> str:
    if not isinstance(error, KourouError):
        return "A bug"
    if code is not Code.SYSTEM_ERROR and code is not Code.SUCCESS:
        return code.name.replace("_", " ").capitalize()
    # One code is used for many errors: the class name is more specific.
    return " ".join(re.findall(r"[A-Z][a-z]*", type(error).__name__)).capitalize()


def retry_after_s(error: BaseException) -> int | None:
    """Seconds for the header Retry-After; None if a retry is useless."""
    if not isinstance(error, Unavailable):
        return None
    return max(RETRY_AFTER_S, -(-error.retry_after_ms // 1_000))


JSON = "application/json"
_encode = msgspec.json.Encoder().encode

ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of every API response; a body sent by a client must not run in a browser."""


def result_response(value: Any, status: int) -> web.Response:
    """The response for the result of an operation's handler."""
    headers = dict(ALWAYS)
    if isinstance(value, Answered):
        headers |= value.headers
        value, status = value.value, value.status
    if isinstance(value, Content):
        headers["Content-Type"] = value.content_type
        if value.filename:
            headers["Content-Disposition"] = disposition(value.filename)
        return web.Response(status=status, body=value.body, headers=headers)
    if value is None and status == HTTPStatus.NO_CONTENT:
        return web.Response(status=status, headers=headers)
    headers["Content-Type"] = JSON
    return web.Response(status=status, body=_encode(value), headers=headers)


def error_response(error: BaseException) -> web.Response:
    """The response for an error, with problem details."""
    problem = problem_of(error)
    headers = {**ALWAYS, "Content-Type": PROBLEM_JSON}
    seconds = retry_after_s(error)
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    if isinstance(error, HttpError):
        if error.allow:
            headers["Allow"] = error.allow
        if error.status is HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = error.challenge
    return web.Response(status=problem.status, body=_encode(problem), headers=headers)


def disposition(filename: str) -> str:
    """Content-Disposition for a file name with any characters (RFC 6266)."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", filename)[:100]
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename[:200], safe='')}"
