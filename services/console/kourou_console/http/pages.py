"""Serves the web pages: files of one folder, read once, with an ETag and a strict security policy.

All files are read when the service starts, so no request reaches the file system, and no request
can name another file. The Content-Security-Policy allows loading from this origin only, no inline
scripts, and no framing.

State: none after start-up.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from kourou.errors import Corrupt
from kourou.model.limits import GATEWAY_PAGE_BYTES_MAX, GATEWAY_PAGES_MAX
from kourou_console.http.responses import HttpError

FOLDER = Path(__file__).parents[1] / "static"
INDEX = "index.html"
GZIP_OVER_BYTES = 1_400
_TEXT = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}

POLICY = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One file. `packed` is its gzipped content, None if compression does not help."""

    content: bytes
    packed: bytes | None
    content_type: str
    etag: str

    def answer(self, request: web.BaseRequest) -> web.Response:
        """The response: the file, or 304 if the browser has it already."""
        headers = {
            **POLICY,
            "ETag": self.etag,
            "Cache-Control": "no-cache",  # revalidated, so that a new version is used
            "Vary": "Accept-Encoding",
        }
        if _matches(request.headers.get("If-None-Match", ""), self.etag):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers["Content-Type"] = self.content_type
        if self.packed is not None and _takes_gzip(request.headers.get("Accept-Encoding", "")):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=self.packed, headers=headers)
        return web.Response(body=self.content, headers=headers)


def page(content: bytes, content_type: str) -> Page:
    """Create a page from bytes."""
    packed = None
    if len(content) > GZIP_OVER_BYTES:
        packed = gzip.compress(content, 9, mtime=0)
        if len(packed) >= len(content):
            packed = None
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Page(content, packed, content_type, f'W/"{digest}"')


class Pages:
    """All files of the console by their paths; `/` is index.html."""

    def __init__(self) -> None:
        self._pages = read_pages(FOLDER)

    def find(self, path: str) -> Page | None:
        """The page at a request's path; None if there is none."""
        return self._pages.get(path)

    def answer(self, request: web.BaseRequest) -> web.Response:
        """The response with the requested page. Raises HttpError (404, 405)."""
        path = request.rel_url.raw_path
        found = self._pages.get(path)
        if found is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"page {path[:200]} not found")
        require_get(request)
        return found.answer(request)


def require_get(request: web.BaseRequest) -> None:
    """Raises HttpError (405) for methods other than GET and HEAD."""
    if request.method not in ("GET", "HEAD"):
        raise HttpError(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"{request.method[:20]} is not supported here",
            allow="GET, HEAD",
        )


def read_pages(folder: Path) -> dict[str, Page]:
    """All files below a folder, without links that leave it and names that start with a dot."""
    found: dict[str, Page] = {}
    root = folder.resolve()
    if not root.is_dir():
        return found
    for file in sorted(root.rglob("*")):
        relative = file.relative_to(root)
        if not file.is_file() or any(part.startswith(".") for part in relative.parts):
            continue
        if not file.resolve().is_relative_to(root):
            continue
        if len(found) >= GATEWAY_PAGES_MAX or file.stat().st_size > GATEWAY_PAGE_BYTES_MAX:
            raise Corrupt(
                f"{folder} is not the folder of the web pages: {relative} exceeds a limit"
            )
        one = page(file.read_bytes(), _type_of(file))
        found["/" + relative.as_posix()] = one
        if relative.as_posix() == INDEX:
            found["/"] = one
    return found


def _type_of(file: Path) -> str:
    known = _TEXT.get(file.suffix.lower())
    return known or mimetypes.guess_type(file.name)[0] or "application/octet-stream"


def _matches(given: str, etag: str) -> bool:
    bare = etag.removeprefix("W/")
    return any(
        one.strip().removeprefix("W/") == bare or one.strip() == "*" for one in given.split(",")
    )


def _takes_gzip(given: str) -> bool:
    for one in given.lower().split(","):
        name, _, quality = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.strip().replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
