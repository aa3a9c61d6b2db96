"""Errors over HTTP: a status, and problem details (RFC 9457) with Kourou's codes.

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

import msgspec

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


class Refused(Rejected):
    """An error with an HTTP status of its own: too large, wrong media type, and so on."""

    def __init__(
        self, status: HTTPStatus, message: str, *, hint: str = "", allow: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
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
    if isinstance(error, Refused):
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
    if isinstance(error, Refused):
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
