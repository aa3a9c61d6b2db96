"""CURVE key files: a process's own key pair, the public keys of servers, those of allowed clients.

The files are certificates in the format of pyzmq and CZMQ: NAME.key holds the public key,
NAME.key_secret holds both keys. A public file may list under `metadata` the servers it applies to:

    metadata
        addresses = broker 127.0.0.1:20911 *:20912
    curve
        public-key = "…"

An address is `host:port`, `host` for all its ports, `*:port`, or `*`; the most specific match wins.
Without addresses, a file in a folder applies to the host with the file's name, and a single file
applies to all servers. A file may contain several such certificates, one after the other. A *ring*
is such a file: the client's own pair first and then the public keys of servers, which is all that a
client needs.

All of them are read again when they have changed. What cannot be read then is logged once, and
changes nothing. A key is changed without a refusal while the other side knows the former and the
next public key: a client tries all keys of a server, and a server accepts all keys of a client.

Secret keys are never printed, logged or included in an error.

State: soft (the content of the files when last read).
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from kourou.errors import ConfigError
from kourou.model.limits import CURVE_FILE_BYTES_MAX, CURVE_KEYS_MAX
from kourou.transport.addresses import split_address
from kourou.transport.wire import WireEvent

_log = logging.getLogger("kourou.transport")

PUBLIC = ".key"
SECRET = ".key_secret"
RING = ".ring"
ANY = "any"
"""Setting value: accept every client that knows the server's public key."""

KEY_CHARS = 40
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")
_ADDRESSES = re.compile(r'^[ \t]+addresses[ \t]*=[ \t]*"?([^"\n]*)"?[ \t]*$', re.MULTILINE)
_SECTION = re.compile(r"^(?=metadata[ \t]*$)", re.MULTILINE)
_PUBLIC_KEY = re.compile(r'^[ \t]+public-key[ \t]*=[ \t]*"([^"\n]*)"', re.MULTILINE)
_SECRET_KEY = re.compile(r'^[ \t]+secret-key[ \t]*=[ \t]*"([^"\n]*)"', re.MULTILINE)
_PATTERN = re.compile(r"\*|(\*:[0-9]{1,5})|[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:\d+)?")

CHECK_S = 1.0
"""How often a listener or a connection checks whether its own pair has changed."""

Signature = tuple[tuple[str, int, int, int], ...]
_Keys = TypeVar("_Keys")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair in Z85 (40 characters per key). The secret key is never shown."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, and the servers that its file assigns it to (empty if the file has none)."""

    key: str
    addresses: tuple[str, ...]


# -- reading ----------------------------------------------------------------------------------


def read_pair(path: Path) -> KeyPair:
    """Read the key pair in a secret file.

    Raises ConfigError with the file and the reason, never the key.
    """
    text = _text(path)
    if not _PUBLIC_KEY.search(text):
        raise _no_keys(path)
    pairs = [one for one in _SECTION.split(text) if _SECRET_KEY.search(one)]
    if len(pairs) != 1:
        raise ConfigError(
            f"{path} holds {len(pairs) or 'no'} secret keys",
            hint=f"exactly one is needed: the file that ends with {SECRET} holds it",
        )
    found, named = _SECRET_KEY.findall(pairs[0]), _PUBLIC_KEY.findall(pairs[0])
    if len(found) != 1 or len(named) != 1:
        raise ConfigError(f"{path}: its pair has {len(named)} public and {len(found)} secret keys")
    secret, public = found[0], named[0]
    _checked(path, secret)
    import zmq  # only processes with keys need it

    if zmq.curve_public(secret.encode()).decode() != public:
        raise ConfigError(f"{path}: its two keys are not a pair")
    return KeyPair(public, secret)


def read_public(path: Path, *, ring: bool = False) -> list[PublicKey]:
    """Read the public keys in a file; there may be several, one after the other.

    In a ring, the owner's own key is skipped. Raises ConfigError if the file has no valid keys.
    """
    found: list[PublicKey] = []
    for section in _SECTION.split(_text(path)):
        if _SECRET_KEY.search(section):
            if ring:
                continue
            raise ConfigError(
                f"{path} holds a secret key, but public keys are expected here",
                hint=f"name the file that ends with {PUBLIC}, and keep the secret key with its "
                f"owner",
            )
        names = _ADDRESSES.findall(section)
        addresses = tuple(names[0].replace(",", " ").split()) if names else ()
        check_addresses(addresses, str(path))
        keys = _PUBLIC_KEY.findall(section)
        found += [PublicKey(_checked(path, key), addresses) for key in keys]
    if not found and not ring:
        raise _no_keys(path)
    return found


def check_addresses(addresses: Iterable[str], source: str) -> None:
    """Raises ConfigError if an address is not `host:port`, `host`, `*:port` or `*`."""
    for address in addresses:
        if not _PATTERN.fullmatch(address):
            raise ConfigError(
                f"{source}: {address!r} does not name a server", hint="host:port, host, *:port or *"
            )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            data = opened.read(CURVE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"the keys in {path} cannot be read: {error.strerror}") from error
    if len(data) > CURVE_FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {CURVE_FILE_BYTES_MAX} bytes; it holds no keys")
    return data.decode("utf-8", "replace")


def _no_keys(path: Path) -> ConfigError:
    return ConfigError(f"{path} holds no CURVE key", hint="make them: kourou keys make FOLDER")


def _checked(path: Path, key: str) -> str:
    import zmq  # only processes with keys need it

    try:
        zmq.curve_public(key.encode())  # accepts any 40 characters of Z85
    except (zmq.ZMQError, ValueError):
        right = False
    else:
        right = len(key) == KEY_CHARS
    if not right:
        raise ConfigError(f"{path}: a key in it is damaged", hint="keys have 40 characters of Z85")
    return key


class _Watched(Generic[_Keys]):
    """What `read` finds in a file, or in the public files of a folder; read again on a change.

    Raises ConfigError if it cannot be read; later that changes nothing.
    """

    def __init__(self, place: Path, read: Callable[[list[Path]], _Keys]) -> None:
        self.place = place
        self._read = read
        self._signature: Signature | None = _signature(place)
        self._found = self._load()

    def current(self) -> _Keys:
        """Return the keys; callable in any thread."""
        signature: Signature | None = None
        with suppress(ConfigError):  # `_load` logs it
            signature = _signature(self.place)
        if signature != self._signature:
            self._signature = signature
            try:
                self._found = self._load()
            except ConfigError as error:
                _log.error(
                    "curve-keys-unread: the keys of %(place)s stay as they were: %(error)s",
                    {"place": self.place, "error": error},
                )
        return self._found

    def _load(self) -> _Keys:
        return self._read([Path(name) for name, *_ in _signature(self.place)])


def _signature(place: Path) -> Signature:
    """Return what changes whenever a file is replaced or written. Raises ConfigError."""
    try:
        if not place.is_dir():
            return (_signed(place),)
        names = sorted(entry.path for entry in os.scandir(place) if _is_public(entry.name))
        if len(names) > CURVE_KEYS_MAX:
            raise ConfigError(f"{place} holds more than {CURVE_KEYS_MAX} keys")
        return tuple(_signed(Path(name)) for name in names)
    except OSError as error:
        raise ConfigError(f"{place} cannot be read: {error.strerror}") from error


def _is_public(name: str) -> bool:
    return name.endswith(PUBLIC) and not name.startswith(".")


def _signed(path: Path) -> tuple[str, int, int, int]:
    facts = path.stat()
    return str(path), facts.st_mtime_ns, facts.st_size, facts.st_ino


class PairFile:
    """The key pair of a process, in its secret file or its ring.

    Raises ConfigError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._watched = _Watched(path, lambda _paths: read_pair(path))

    @property
    def pair(self) -> KeyPair:
        """The pair that is in the file now."""
        return self._watched.current()


class ServerKeys:
    """The public keys of the servers that a client may connect to."""

    def __init__(self, place: Path, *, ring: bool = False) -> None:
        """`place` is a file or a folder; with `ring` it is the ring of the client itself.

        Raises ConfigError if it cannot be read.
        """
        self._watched = _Watched(place, lambda paths: _by_name(paths, ring=ring))

    @property
    def place(self) -> Path:
        """The file or folder."""
        return self._watched.place

    def check(self) -> None:
        """Raises ConfigError if it contains no public key."""
        if not any(self._watched.current().values()):
            raise ConfigError(
                f"{self.place} holds no public key of a server",
                hint=f"files in a folder end with {PUBLIC}; a ring has them behind its own pair",
            )

    def of(self, address: str) -> tuple[str, ...]:
        """Return the keys that the server at `host:port` may have, more than one while it changes.

        These are the keys of the most specific address. Raises ConfigError if none is known.
        """
        host, port = split_address(address)
        is_folder = self.place.is_dir()
        known = [
            (one.addresses or ((name,) if is_folder else ("*",)), one.key)
            for name, keys in self._watched.current().items()
            for one in keys
        ]
        for wanted in (f"{host}:{port}", f"[{host}]:{port}", host, f"[{host}]", f"*:{port}", "*"):
            if found := tuple(key for addresses, key in known if wanted in addresses):
                return found
        raise ConfigError(
            f"no public key is known for {address}",
            hint=f"put it into {self.place} as {host}{PUBLIC}, or name {address} among the "
            "addresses of its file there",
        )


class AllowedKeys:
    """The clients that a server accepts: those whose public keys are in a file or folder, or any.

    A key that is added later is accepted from then on, and a removed key no longer; connected
    clients stay connected.
    """

    def __init__(self, place: Path | None) -> None:
        """None accepts every client that knows the server's key.

        Raises ConfigError if `place` holds no keys.
        """
        self._watched = None if place is None else _Watched(place, _all)
        if self._watched is not None and not self._watched.current():
            raise ConfigError(
                f"{place} holds no public key, so no client could connect",
                hint=f"put NAME{PUBLIC} files there, or use {ANY!r}",
            )

    def allows(self, key: str) -> bool:
        """Is the client with this public key accepted? Called by the gate's thread."""
        return self._watched is None or key in self._watched.current()

    @property
    def admits_all(self) -> bool:
        """Is every client accepted?"""
        return self._watched is None

    @classmethod
    def of_setting(cls, text: str) -> AllowedKeys:
        """Create from a setting's value: a file or folder, or `any`."""
        return cls(None if text == ANY else Path(text))


def _by_name(paths: Iterable[Path], *, ring: bool = False) -> Mapping[str, list[PublicKey]]:
    """Map file names without their suffix to keys."""
    return {path.name.removesuffix(PUBLIC): read_public(path, ring=ring) for path in paths}


def _all(paths: Iterable[Path]) -> frozenset[str]:
    return frozenset(one.key for keys in _by_name(paths).values() for one in keys)


# -- making -----------------------------------------------------------------------------------


def make_pair(
    folder: Path, name: str, addresses: Iterable[str] = (), *, mode: int = 0o600
) -> tuple[Path, Path]:
    """Create NAME.key and NAME.key_secret in `folder`; returns both paths.

    The secret file has `mode` before it gets its name. Raises ConfigError if it exists, in which
    case it is not changed, or if the folder cannot be written.
    """
    from zmq.auth import create_certificates  # only processes with keys need it

    names = tuple(addresses)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid key name", hint="letters, digits, . _ -")
    check_addresses(names, f"the addresses of {name}")
    public, secret = folder / f"{name}{PUBLIC}", folder / f"{name}{SECRET}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as aside:
            made = Path(create_certificates(aside, name)[1])
            made.chmod(mode)
            key = read_pair(made).public
            os.link(made, secret)  # fails if it exists, even if just created by another process
        write_public(public, key, names)
    except FileExistsError as error:
        raise ConfigError(
            f"{secret} exists already and is not overwritten",
            hint="choose another folder or name for a new pair",
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot make keys in {folder}: {error.strerror}") from error
    return public, secret


def write_public(path: Path, key: str, addresses: Iterable[str] = ()) -> None:
    """Write a public key file; replaces an existing one. Raises ConfigError."""
    names = tuple(addresses)
    check_addresses(names, str(path))
    _write(path, _certificate(PublicKey(key, names)), 0o644)


def write_ring(path: Path, own: KeyPair, servers: Iterable[PublicKey]) -> None:
    """Write a client's ring, readable by its owner only; replaces an existing one."""
    parts = [_certificate(PublicKey(own.public, ()), own.secret), *map(_certificate, servers)]
    _write(path, "".join(parts), 0o600)


def _certificate(public: PublicKey, secret: str = "") -> str:
    lines = ["metadata"]
    if public.addresses:
        lines.append(f"    addresses = {' '.join(public.addresses)}")
    lines += ["curve", f'    public-key = "{public.key}"']
    if secret:
        lines.append(f'    secret-key = "{secret}"')
    return "\n".join([*lines, ""])


def _write(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
            aside = Path(folder) / path.name  # other users cannot read that folder
            aside.write_text(text, encoding="ascii")
            aside.chmod(mode)
            aside.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


# -- the keys of listeners and clients, and why a handshake failed --------------------------------

# ZeroMQ does not report a failed handshake to its user. Therefore the events of the socket's
# monitor are translated here, and a request fails with the cause and the remedy.


@dataclass(frozen=True, slots=True)
class ServerCurve:
    """The keys of a listener: its own, and those of the clients that it accepts."""

    own: PairFile
    allowed: AllowedKeys


@dataclass(frozen=True, slots=True)
class ClientCurve:
    """The keys of a process that connects: its own, and the public keys of servers."""

    own: PairFile
    servers: ServerKeys


def trouble_of(event: WireEvent, curve: ClientCurve | None) -> str:
    """Return the cause of a failed handshake for the connecting side, and the remedy.

    BAD_GREETING (the server closed the connection) may be any cause, because the server's error
    message may have been lost with the connection.
    """
    if event is WireEvent.NOT_LET_IN and curve is not None:
        return (
            f"the server refused this client: add the public key {curve.own.pair.public} to its "
            "curveClients (for followers, Raft members and filter servers also to curveMembers)"
        )
    if event is WireEvent.OTHER_MECHANISM:
        if curve is None:
            return (
                "the server requires CURVE keys, and this client has none: set curveKeyFile and "
                "curveServerKey "
                "(KOUROU_CURVE_KEY_FILE, KOUROU_CURVE_SERVER_KEY)"
            )
        return (
            "the server is not encrypted, and this client requires CURVE: set curveKeyFile at the "
            "server, or remove curveKeyFile (KOUROU_CURVE_KEY_FILE) here"
        )
    if curve is not None:
        return (
            "the handshake failed: the configured public key is not that of the server, or the "
            f"server has none; compare {curve.servers.place} with the server's .key file"
        )
    return (
        "the other side does not use ZeroMQ, or refused this client: if it requires CURVE keys, "
        "set curveKeyFile and curveServerKey (KOUROU_CURVE_KEY_FILE, KOUROU_CURVE_SERVER_KEY)"
    )


def refusal_of(event: WireEvent) -> str:
    """Return the cause for the listening side's log; "" if the gate has already logged it."""
    if event is WireEvent.OTHER_MECHANISM:
        return "refused a client without CURVE keys: this listener requires them"
    if event is WireEvent.BAD_GREETING:
        return "a client's handshake failed; it may have an old public key of this server"
    return ""
