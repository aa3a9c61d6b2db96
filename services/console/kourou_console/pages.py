"""The web pages: files of one folder, read once, served with an ETag and a strict policy.

Everything is read when the service starts, so no request reaches the file system and none can name
a file that is not there. What a browser may do with a page stands in the policy: load from here and
nowhere else, run no script that stands in a page, be framed by nobody.

State: none once it is read.
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
from kourou_console.problems import Refused

FOLDER = Path(__file__).with_name("static")
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
    """One file as it is answered. `packed` is it gzipped, None where that is no gain."""

    content: bytes
    packed: bytes | None
    content_type: str
    etag: str

    def answer(self, request: web.BaseRequest) -> web.Response:
        """The file, or that the browser has it already."""
        headers = {
            **POLICY,
            "ETag": self.etag,
            "Cache-Control": "no-cache",  # kept, and asked for again: a new version is seen at once
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
    """A page of these bytes."""
    packed = None
    if len(content) > GZIP_OVER_BYTES:
        packed = gzip.compress(content, 9, mtime=0)
        if len(packed) >= len(content):
            packed = None
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Page(content, packed, content_type, f'W/"{digest}"')


class Pages:
    """All files of a folder by their paths; `/` is index.html."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._pages = read_pages(folder)

    def find(self, path: str) -> Page | None:
        """The page at a path as it stands in a request; None if there is none."""
        return self._pages.get(path)

    def answer(self, request: web.BaseRequest) -> web.Response:
        """The page that is asked for. Raises Refused (404, 405)."""
        path = request.rel_url.raw_path
        found = self._pages.get(path)
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"page {path[:200]} not found")
        require_get(request)
        return found.answer(request)


def require_get(request: web.BaseRequest) -> None:
    """Raise Refused (405) for anything but GET and HEAD."""
    if request.method not in ("GET", "HEAD"):
        raise Refused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"{request.method[:20]} is not supported here",
            allow="GET, HEAD",
        )


def read_pages(folder: Path) -> dict[str, Page]:
    """Every file below a folder; links out of it and names that begin with a dot are left out."""
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
