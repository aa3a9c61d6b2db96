"""Authentication and authorization: users of the brokers, bearer tokens, or local pages only.

    [[token]]
    name = "ci"                      # shown in logs and histories
    right = "write"                  # read, write or admin; each includes those before it
    token = "..."                    # at least 16 characters; or sha256 = "64 hex digits"

A token is compared by its SHA-256 with all known ones every time, so the response time reveals
nothing. The file is read again when it has changed, and at SIGHUP. If it cannot be read, the
current tokens remain valid, and the log contains an error.

Without tokens the listener is for this machine only, whose browsers may run pages of other web
sites. Such a page can send requests, but cannot choose the headers Host and Origin. Host must be an
IP address, localhost or a name in `consoleNames` (any other name is DNS rebinding), and Origin must
equal Host.

With signIn=users a caller is a user of the brokers (kourou_console.http.sign_in), or still has a
token of the file; tokens that begin with kourou_ are those of users. If the connection's
certificate belongs to a user, other credentials must be that user's. A browser may attach a user's
credentials to requests of other sites' pages by itself, so Origin must equal Host, and changes must
not come from other sites.

State: soft, the tokens' digests.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from kourou.access.api_token import PREFIX, owner_of
from kourou.errors import ConfigError, NoPermission
from kourou.model.limits import GATEWAY_TOKENS_MAX
from kourou.operations import Right
from kourou.transport.addresses import IpNetwork
from kourou.transport.tls import certificate_subject
from kourou_console.http.call import ANYBODY, Caller
from kourou_console.http.pages import require_get
from kourou_console.http.responses import HttpError
from kourou_console.http.sessions import SAFE_METHODS, Sessions, open_view

LOOK_MS = 1_000
"""The minimum interval between checks of the file's modification time."""

TOKEN_LENGTH_MIN = 16
OWN_PAGES = "use the gateway's own pages, or a program that is not a web page"
_log = logging.getLogger("kourou.console.access")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    right: str
    token: str = ""
    sha256: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: list[_Entry]


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    caller: Caller


class Tokens:
    """The tokens of a file. The constructor raises ConfigError if it is missing or invalid."""

    def __init__(self, file: Path, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self._looked_ms = now_ms()
        self._seen = _stamp(file)
        self._known = read_tokens(file)

    def reread(self) -> None:
        """Read the file again now; if it cannot be read, nothing changes."""
        try:
            self._seen = _stamp(self._file)
            self._known = read_tokens(self._file)
        except ConfigError as error:
            _log.error(
                "token-reload-failed: the tokens were not reloaded: %(error)s", {"error": error}
            )
        else:
            _log.info(
                "tokens-reloaded: loaded %(tokens)d tokens from %(file)s",
                {"tokens": len(self._known), "file": self._file},
            )

    def caller(self, authorization: str | None) -> Caller:
        """The owner of a token. Raises HttpError (401)."""
        now_ms = self._now_ms()
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            if self._changed():
                self.reread()
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise HttpError(
                HTTPStatus.UNAUTHORIZED,
                "this gateway requires a token",
                hint="send the header Authorization: Bearer TOKEN",
            )
        digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
        found: Caller | None = None
        for one in self._known:
            if hmac.compare_digest(one.digest, digest):
                found = one.caller
        if found is None:
            raise HttpError(HTTPStatus.UNAUTHORIZED, "unknown token")
        return found

    def _changed(self) -> bool:
        try:
            return _stamp(self._file) != self._seen
        except ConfigError as error:
            _log.error(
                "token-reload-failed: the tokens were not reloaded: %(error)s", {"error": error}
            )
            return False


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise ConfigError(f"tokenFile {file} cannot be read: {error.strerror}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_tokens(file: Path) -> list[_Known]:
    """Parse the tokens of a file. Raises ConfigError, which never contains a token."""
    try:
        text = file.read_text(encoding="utf-8")
        entries = msgspec.convert(tomllib.loads(text), _File).token
    except OSError as error:
        raise ConfigError(f"tokenFile {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"tokenFile {file} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"tokenFile {file} is not TOML: {_place(error)}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"tokenFile {file}: {error}") from None
    if not 0 < len(entries) <= GATEWAY_TOKENS_MAX:
        raise ConfigError(
            f"tokenFile {file} has {len(entries)} tokens; 1 to {GATEWAY_TOKENS_MAX} are read"
        )
    known = [_known(file, number, entry) for number, entry in enumerate(entries, 1)]
    if len({one.digest for one in known}) < len(known):
        raise ConfigError(f"tokenFile {file} has the same token twice")
    return known


def _place(error: tomllib.TOMLDecodeError) -> str:
    """The position of the error, without the text itself, which might be a token."""
    text = str(error)
    return text[text.rfind("(at ") :].strip("()") if "(at " in text else "it cannot be read"


def _known(file: Path, number: int, entry: _Entry) -> _Known:
    where = f"tokenFile {file}, token {number}"
    if not entry.name.isprintable() or not 0 < len(entry.name) <= 64:
        raise ConfigError(f"{where}: the name must have 1 to 64 printable characters")
    right = Right.__members__.get(entry.right.upper())
    if right is None:
        raise ConfigError(
            f"{where} ({entry.name}): right is {entry.right!r}", hint="read, write, admin"
        )
    if bool(entry.token) == bool(entry.sha256):
        raise ConfigError(f"{where} ({entry.name}): give token or sha256, one of them")
    if entry.token:
        if len(entry.token) < TOKEN_LENGTH_MIN:
            raise ConfigError(
                f"{where} ({entry.name}): a token has {TOKEN_LENGTH_MIN} characters at least"
            )
        digest = hashlib.sha256(entry.token.encode()).digest()
    else:
        try:
            digest = bytes.fromhex(entry.sha256)
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise ConfigError(f"{where} ({entry.name}): sha256 must be 64 hex digits")
    return _Known(digest, Caller(entry.name, right))


_HOSTS_SEEN_MAX = 64
"""The number of remembered valid Host headers; it is limited because callers choose them."""


class AccessControl:
    """Determines a request's caller. `names` are additional host names of this listener, `proxies`
    the networks of proxies that tell where a request comes from.

    With `sessions`, users of the brokers may call, and of others only those with a token.
    """

    def __init__(
        self,
        tokens: Tokens | None,
        names: Collection[str] = (),
        sessions: Sessions | None = None,
        proxies: Sequence[IpNetwork] = (),
    ) -> None:
        self._proxies = proxies
        self._tokens = tokens
        self._sessions = sessions
        self._names = {"localhost", *(name.lower() for name in names)}
        self._hosts_seen: set[str] = set()

    async def identify(self, request: web.BaseRequest) -> Caller:
        """The caller of a request, who may be a user of the brokers.

        Raises HttpError (401), Throttled after wrong secrets, NoPermission for a foreign page.
        """
        headers = request.headers
        sessions = self._sessions
        is_users = _has_token(headers, PREFIX)
        if sessions is None or (self._tokens is not None and _has_token(headers) and not is_users):
            return self.caller(request.method, headers)
        check_origin(request.method, headers)
        owner = await sessions.sign_ins.by_certificate(_subject(request))
        has_secret = "Authorization" in headers
        who = None if has_secret else await sessions.who(request) or owner
        if who is None:
            prove = sessions.sign_ins.by_token if is_users else sessions.sign_ins.by_basic
            who = await prove(headers, self.source(request))
        if owner is not None and owner.user != owner_of(who.user):
            raise NoPermission(
                f"the certificate of this connection does not belong to user {who.user}",
                hint="use the credentials of one user",
            )
        return who.caller

    async def session(self, request: web.BaseRequest) -> web.Response:
        """The response to a request about the caller's session."""
        if self._sessions is None:
            self.check_page(request.method, request.headers)
            require_get(request)
            return open_view(tokens=self._tokens is not None)
        check_origin(request.method, request.headers)
        return await self._sessions.answer(request, self.source(request))

    def source(self, request: web.BaseRequest) -> str:
        """The address that a request comes from."""
        forwarded = request.headers.getall("X-Forwarded-For", [])
        return source_of(request.remote or "", forwarded, self._proxies)

    def caller(self, method: str, headers: Mapping[str, str]) -> Caller:
        """The caller of a request. Raises HttpError (401), or NoPermission for a foreign page."""
        if self._tokens is not None:
            return self._tokens.caller(headers.get("Authorization"))
        self.check_page(method, headers)
        return ANYBODY

    def check_page(self, method: str, headers: Mapping[str, str]) -> None:
        """Reject requests from pages of other sites, if no credentials are needed."""
        if self._tokens is not None or self._sessions is not None:
            return
        host = headers.get("Host", "")
        if not self._is_ours(host):
            raise NoPermission(
                f"the Host header {host[:100]!r} is not a name of this server",
                hint="use the server's address, or add the name to consoleNames",
            )
        check_origin(method, headers)

    def _is_ours(self, host: str) -> bool:
        if host in self._hosts_seen:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self._names:
                ipaddress.ip_address(name)
        except ValueError:
            return False
        if len(self._hosts_seen) < _HOSTS_SEEN_MAX:
            self._hosts_seen.add(host)
        return True


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Raise NoPermission for a request from a page of another site."""
    origin = headers.get("Origin")
    if origin is not None and not _same(origin, headers.get("Host", "")):
        raise NoPermission(f"a page of {origin[:100]!r} may not use this gateway", hint=OWN_PAGES)
    site = headers.get("Sec-Fetch-Site", "none")
    if method not in SAFE_METHODS and site not in ("same-origin", "none"):
        raise NoPermission("a page of another site may not change anything", hint=OWN_PAGES)


def _subject(request: web.BaseRequest) -> str:
    """The subject of the certificate that the caller's connection has; "" without one."""
    tls = request.get_extra_info("ssl_object")
    return "" if tls is None else certificate_subject(tls)


def _has_token(headers: Mapping[str, str], prefix: str = "") -> bool:
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and token.strip().startswith(prefix)


def _same(origin: str, host: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def require(caller: Caller, right: Right) -> None:
    """Raises NoPermission if the caller lacks the right."""
    if caller.right < right:
        raise NoPermission(
            f"the token {caller.name!r} has the right {caller.right.name.lower()}; this needs "
            f"{right.name.lower()}"
        )


def source_of(remote: str, forwarded: Sequence[str], proxies: Sequence[IpNetwork]) -> str:
    """The address that a request comes from: that of the connection, or what proxies tell.

    `forwarded` are the headers X-Forwarded-For. Each proxy adds the address it got the request from
    at the end, so the last address that is no proxy's is taken: what precedes it anyone can write.
    """
    hops = [hop.strip() for value in forwarded for hop in value.split(",")]
    source = remote
    while hops and _is_in(source, proxies):
        source = hops.pop()
    return source


def _is_in(address: str, networks: Sequence[IpNetwork]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in network for network in networks)
