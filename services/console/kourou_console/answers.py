"""Converts values and errors to HTTP responses."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from kourou_console.call import Answered, Content
from kourou_console.problems import (
    PROBLEM_JSON,
    Refused,
    problem_of,
    retry_after_s,
)

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


def answered(value: Any, status: int) -> web.Response:
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


def written(error: BaseException) -> web.Response:
    """The response for an error, with problem details."""
    problem = problem_of(error)
    headers = {**ALWAYS, "Content-Type": PROBLEM_JSON}
    seconds = retry_after_s(error)
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    if isinstance(error, Refused):
        if error.allow:
            headers["Allow"] = error.allow
        if error.status is HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Bearer realm="kourou"'
    return web.Response(status=problem.status, body=_encode(problem), headers=headers)


def disposition(filename: str) -> str:
    """Content-Disposition for a file name with any characters (RFC 6266)."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", filename)[:100]
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename[:200], safe='')}"
